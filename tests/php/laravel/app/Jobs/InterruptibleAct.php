<?php

namespace App\Jobs;

use Cohort\Fake\Wire;
use Illuminate\Contracts\Queue\Interruptible;

class InterruptibleAct extends Act implements Interruptible
{
    public function interrupted(int $signal): void
    {
        Wire::record('interrupted', $signal);
        $this->how === 'refuse' && throw new \DomainException('not now');
    }
}
