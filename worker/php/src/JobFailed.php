<?php

declare(strict_types=1);

namespace Cohort;

/** A job was failed by hand, ran too long, or was started too often. */
final class JobFailed extends \RuntimeException
{
}
