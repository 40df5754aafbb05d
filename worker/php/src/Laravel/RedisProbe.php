<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Redis\Connectors\PhpRedisConnector;

/** Laravel's connector of phpredis, up to the moment where it would connect. */
final class RedisProbe extends PhpRedisConnector
{
    /** @var array<string, mixed> what a client would be made of */
    public array $config = [];

    protected function createClient(array $config)
    {
        if (!extension_loaded('redis')) {
            throw new \RuntimeException('the PHP extension redis is not loaded here; install it for the embed SAPI too'
                . ' (php-redis)');
        }
        $this->config = $config;
        return new \Redis();
    }
}
