<?php

$database = ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90];

return [
    'default' => env('QUEUE_CONNECTION', 'database'),
    'connections' => [
        'sync' => ['driver' => 'sync'],
        'database' => $database,
        'prefixed' => ['connection' => 'prefixed', 'queue' => 'high,low'] + $database,
        'memory' => ['connection' => 'memory'] + $database,
        'missing' => ['connection' => 'missing'] + $database,
        'mysql' => ['connection' => 'mysql'] + $database,
        'redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90],
        'strange' => ['driver' => 'strange'],
    ],
    'failed' => ['driver' => env('FAILED_DRIVER', 'database-uuids'), 'database' => 'sqlite', 'table' => 'failed_jobs'],
    'batching' => ['database' => 'sqlite', 'table' => 'job_batches'],
];
