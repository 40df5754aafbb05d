<?php

declare(strict_types=1);

/*
 * Run once by the zygote: boots the application and keeps it, so that every worker cloned from the
 * zygote finds it ready. The package is loaded without Composer, because the application need not
 * require it.
 */

require_once __DIR__ . '/autoload.php';

try {
    Cohort\Runtime::boot(Cohort\Worker\config());
} catch (Throwable $error) {
    throw Cohort\BootError::from($error);
}
