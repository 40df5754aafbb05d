<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** A measurement that cannot be trusted: it ends the run with what happened and what to do. */
final class Failure extends \RuntimeException
{
}
