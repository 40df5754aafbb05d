<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldBeUnique;

/** One of these at a time. */
class UniqueAct extends Act implements ShouldBeUnique
{
    public function uniqueId()
    {
        return 'one';
    }
}
