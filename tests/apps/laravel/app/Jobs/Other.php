<?php

namespace App\Jobs;

/** The same in another class. */
class Other extends Probe
{
}
