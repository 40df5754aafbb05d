<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldBeUniqueUntilProcessing;

class AloneUntilProcessing extends Alone implements ShouldBeUniqueUntilProcessing
{
}
