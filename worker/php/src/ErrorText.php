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

    /** At most so many bytes of UTF-8, no character cut in two. */
    public static function cut(string $text, int $bytes): string
    {
        if (strlen($text) <= $bytes) {
            return $text;
        }
        return (string) preg_replace('/[\xc0-\xff][\x80-\xbf]*$/', '', substr($text, 0, $bytes));
    }
}
