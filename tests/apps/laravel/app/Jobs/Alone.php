<?php

namespace App\Jobs;

use Illuminate\Contracts\Queue\ShouldBeUnique;

/** Of each id one at a time. */
class Alone extends Probe implements ShouldBeUnique
{
    public $uniqueFor = 600;

    public function uniqueId()
    {
        return $this->id;
    }
}
