<?php

/* Prints the payload that Laravel's own queue makes of a Bench job: php payload.php WHAT [ARGUMENT [FILE]] */

require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();

$queue = $app['queue']->connection('database');
$create = new ReflectionMethod($queue, 'createPayload');
$create->setAccessible(true);
echo $create->invoke($queue, new App\Jobs\Bench($argv[1], (int) ($argv[2] ?? 0), $argv[3] ?? ''), 'default', '');
