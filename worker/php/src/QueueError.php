<?php

declare(strict_types=1);

namespace Cohort;

/** The plain PHP queue database cannot be used. */
final class QueueError extends \RuntimeException
{
}
