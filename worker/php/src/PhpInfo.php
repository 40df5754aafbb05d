<?php

declare(strict_types=1);

namespace Cohort;

/** What `cohort doctor` shows of PHP. */
final class PhpInfo
{
    /** Settings that explain most surprises. */
    private const INI = [
        'memory_limit', 'max_execution_time', 'error_reporting', 'display_errors', 'log_errors', 'error_log',
        'date.timezone', 'variables_order', 'zend.assertions', 'disable_functions', 'open_basedir',
        'opcache.enable', 'opcache.enable_cli', 'opcache.memory_consumption', 'opcache.validate_timestamps',
        'opcache.preload', 'opcache.jit', 'opcache.jit_buffer_size', 'opcache.lockfile_path',
        'pcre.jit', 'session.save_handler',
    ];

    /** @return array<string, mixed> */
    public static function collect(): array
    {
        return [
            'version' => PHP_VERSION,
            'sapi' => PHP_SAPI,
            'extensions' => self::extensions(),
            'ini' => self::ini(),
            'ini_files' => self::iniFiles(),
            'pcntl' => extension_loaded('pcntl'),
            'opcache' => self::opcacheRuns(),
        ];
    }

    /** @return array<string, string> name to version */
    private static function extensions(): array
    {
        $extensions = [];
        foreach (array_merge(get_loaded_extensions(), get_loaded_extensions(true)) as $name) {
            $extensions[$name] = (string) (phpversion($name) ?: '');
        }
        ksort($extensions, SORT_FLAG_CASE | SORT_STRING);
        return $extensions;
    }

    /** @return array<string, string> */
    private static function ini(): array
    {
        $values = [];
        foreach (self::INI as $name) {
            $value = ini_get($name);
            if ($value !== false) {
                $values[$name] = (string) $value;
            }
        }
        return $values;
    }

    /** @return list<string> */
    private static function iniFiles(): array
    {
        $all = (php_ini_loaded_file() ?: '') . ',' . (php_ini_scanned_files() ?: '');
        return array_values(array_filter(array_map(trim(...), explode(',', $all))));
    }

    private static function opcacheRuns(): bool
    {
        if (!function_exists('opcache_get_status')) {
            return false;
        }
        $status = @opcache_get_status(false);
        return is_array($status) && ($status['opcache_enabled'] ?? false);
    }
}
