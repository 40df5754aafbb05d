<?php

/* Boots the application and runs the PHP code on standard input. The code goes through a file, since
 * Laravel reads the source of the closures that it serializes. */

require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();

$file = tempnam(__DIR__.'/storage', 'run');
file_put_contents($file, "<?php\n".stream_get_contents(STDIN));
try {
    require $file;
} catch (Throwable $e) {
    fwrite(STDERR, get_class($e).": {$e->getMessage()} in {$e->getFile()}:{$e->getLine()}\n");
    exit(1);
} finally {
    unlink($file);
}
