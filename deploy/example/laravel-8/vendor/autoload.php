<?php

/* Laravel 8.83 as Debian packages it: no Composer. PHP 8.2 deprecates much of what it does. */
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);

require_once 'Illuminate/autoload.php';

spl_autoload_register(function ($class) {
    if (strncmp($class, 'App\\', 4) === 0) {
        $file = dirname(__DIR__).'/app/'.strtr(substr($class, 4), '\\', '/').'.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
