<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldBeEncrypted;

class Secret extends Probe implements ShouldBeEncrypted
{
}
