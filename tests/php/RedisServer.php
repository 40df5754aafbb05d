<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** A Redis of a test's own, on a socket in its directory; it ends with this object. */
final class RedisServer
{
    public readonly string $socket;
    /** @var resource */
    private $process;

    public function __construct(string $dir)
    {
        $this->socket = "{$dir}/redis.sock";
        $this->process = proc_open(
            ['redis-server', '--port', '0', '--unixsocket', $this->socket, '--dir', $dir, '--save', '', '--appendonly', 'no'],
            [['file', '/dev/null', 'r'], ['file', "{$dir}/redis.out", 'w'], ['file', "{$dir}/redis.out", 'a']],
            $pipes,
        );
        for ($until = hrtime(true) + 30e9; !$this->answers();) {
            if (hrtime(true) > $until || !proc_get_status($this->process)['running']) {
                throw new \RuntimeException('redis-server did not start: ' . file_get_contents("{$dir}/redis.out"));
            }
            usleep(5000);
        }
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
    }

    public function redis(): \Redis
    {
        $redis = new \Redis();
        $redis->connect($this->socket);
        return $redis;
    }

    private function answers(): bool
    {
        try {
            return file_exists($this->socket) && $this->redis()->ping() !== false;
        } catch (\RedisException) {
            return false;
        }
    }
}
