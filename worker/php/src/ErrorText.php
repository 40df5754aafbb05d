<?php

declare(strict_types=1);

namespace Cohort;

/** Throwables as text for logs and outcomes. */
final class ErrorText
{
    /** "Class: message in file:line" and the trace below it. The agent cuts what is too long. */
    public static function of(\Throwable $error): string
    {
        return self::head($error) . "\n" . $error->getTraceAsString();
    }

    /** "Class: message in file:line". */
    public static function head(\Throwable $error): string
    {
        return sprintf('%s: %s in %s:%d', $error::class, $error->getMessage(), $error->getFile(), $error->getLine());
    }
}
