<?php

return [
    'default' => 'sqlite',
    'connections' => [
        'sqlite' => ['driver' => 'sqlite', 'url' => env('DATABASE_URL'), 'prefix' => '',
            'database' => env('DB_DATABASE', database_path('database.sqlite')), 'synchronous' => 'NORMAL'],
        'prefixed' => ['driver' => 'sqlite', 'prefix' => 'shop_', 'database' => database_path('database.sqlite')],
        'memory' => ['driver' => 'sqlite', 'prefix' => '', 'database' => ':memory:'],
        'missing' => ['driver' => 'sqlite', 'prefix' => '', 'database' => '/nonexistent/x.sqlite'],
        'mysql' => ['driver' => 'mysql', 'host' => '127.0.0.1', 'database' => 'x', 'username' => 'x', 'password' => 'x', 'prefix' => ''],
    ],
    'migrations' => 'migrations',
    'redis' => ['client' => 'phpredis', 'options' => ['prefix' => 'fixture_'],
        'default' => ['host' => env('REDIS_HOST', '127.0.0.1'), 'port' => env('REDIS_PORT', 6379)]],
];
