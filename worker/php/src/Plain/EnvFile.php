<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\BootError;

/** Reads an environment file of NAME=value lines. What the environment already has is left alone. */
final class EnvFile
{
    /**
     * @param string $dir  the application's directory, for a relative file
     * @param string $file '' = none
     *
     * @throws BootError it cannot be read
     */
    public static function load(string $dir, string $file): void
    {
        if ($file === '') {
            return;
        }
        $path = str_starts_with($file, '/') ? $file : "{$dir}/{$file}";
        $text = is_readable($path) && is_file($path) ? file_get_contents($path) : false;
        if ($text === false) {
            throw new BootError("The environment file {$path} does not exist or may not be read by this user;"
                . ' correct env_file or create it.');
        }
        foreach (self::parse($text) as $name => $value) {
            if (getenv($name) === false) {
                putenv("{$name}={$value}");
                $_ENV[$name] = $_SERVER[$name] = $value;
            }
        }
    }

    /**
     * Lines "NAME=value", "export NAME=value", with the value bare, in single quotes (verbatim) or
     * in double quotes (with \n, \" and \\); # begins a comment.
     *
     * @return array<string, string>
     */
    public static function parse(string $text): array
    {
        $pattern = '/^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*'
            . '(?:\'([^\']*)\'|"((?:[^"\\\\]|\\\\.)*)"|([^#\r\n]*?))\s*(?:#.*)?$/m';
        preg_match_all($pattern, $text, $matches, PREG_SET_ORDER | PREG_UNMATCHED_AS_NULL);
        $values = [];
        foreach ($matches as [, $name, $single, $double, $bare]) {
            $values[$name] = $single ?? ($double === null ? (string) $bare : self::unescape($double));
        }
        return $values;
    }

    private static function unescape(string $text): string
    {
        return strtr($text, ['\\n' => "\n", '\\"' => '"', '\\\\' => '\\']);
    }
}
