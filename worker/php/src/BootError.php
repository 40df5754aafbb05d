<?php

declare(strict_types=1);

namespace Cohort;

/** The application could not be booted. Its message says what, where, why and what to do. */
final class BootError extends \RuntimeException
{
    /** Wrap whatever the boot threw; a BootError stays as it is. */
    public static function from(\Throwable $error): self
    {
        if ($error instanceof self) {
            return $error;
        }
        return new self('The application did not boot: ' . ErrorText::head($error), 0, $error);
    }
}
