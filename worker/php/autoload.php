<?php

declare(strict_types=1);

/*
 * Autoloader for the classes of this package, for use without Composer. It is put first, so that
 * the package that came with the agent wins over a copy in the application's vendor directory.
 */

spl_autoload_register(static function (string $class): void {
    if (!str_starts_with($class, 'Cohort\\')) {
        return;
    }
    $file = __DIR__ . '/src/' . strtr(substr($class, 7), '\\', '/') . '.php';
    if (is_file($file)) {
        require $file;
    }
}, true, true);

require_once __DIR__ . '/src/functions.php';
