<?php

namespace App\Jobs;

use Illuminate\Bus\Batchable;

class BatchAct extends Act
{
    use Batchable;
}
