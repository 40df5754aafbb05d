<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;

/**
 * Where a Redis queue lives and how to get in, for the agent.
 *
 * Laravel's own connectors resolve it, so that URLs, prefixes and options mean what they mean to the
 * application; only the client they would connect is another one.
 */
final class RedisSettings
{
    private const TLS_TEXT = ['cafile', 'capath', 'local_cert', 'local_pk', 'passphrase', 'peer_name'];
    private const SCHEMES = ['tcp' => 'tcp', 'redis' => 'tcp', 'tls' => 'tls', 'ssl' => 'tls', 'rediss' => 'tls', 'unix' => 'unix'];
    private const PORT = 6379;
    private const SENTINEL_PORT = 26379;

    public function __construct(private readonly Application $app)
    {
    }

    /**
     * @return array<string, mixed> 'queue', 'retry_after' and 'redis', or 'refused'
     */
    public function describe(RedisQueue $queue): array
    {
        $read = static fn (RedisQueue $own): array
            => [$own->connection, $own->default, $own->retryAfter, $own->blockFor, $own->migrationBatchSize ?? -1];
        [$connection, $default, $retryAfter, $blockFor, $batch] = \Closure::bind($read, null, RedisQueue::class)($queue);
        $manager = $queue->getRedis();
        if (!$manager instanceof RedisManager) {
            return ['refused' => 'its Redis manager was replaced by ' . $manager::class . ', which Cohort does not know'];
        }
        $name = $connection ?: 'default';
        $about = $this->connect($manager, (string) $name);
        if (isset($about['refused'])) {
            return $about;
        }
        $about += ['connection' => (string) $name, 'block_for' => $blockFor, 'migration_batch' => (int) $batch];
        return ['queue' => (string) $default, 'retry_after' => $retryAfter === null ? null : (int) $retryAfter, 'redis' => $about];
    }

    /** @return array<string, mixed> */
    private function connect(RedisManager $manager, string $name): array
    {
        $read = static fn (RedisManager $own): array => [$own->driver, $own->config, $own->customCreators];
        [$driver, $config, $custom] = \Closure::bind($read, null, RedisManager::class)($manager);
        if (!isset($config[$name]) && isset($config['clusters'][$name])) {
            return ['refused' => "its Redis connection {$name} is a Redis Cluster, which Cohort does not serve:"
                . ' give the queue a Redis connection of its own (queue.connections.*.connection)'];
        }
        $known = isset($config[$name]['sentinel_host']);
        if (isset($custom[$driver]) && !$known) {
            return ['refused' => "its Redis client {$driver} is the application's own (Redis::extend()), which Cohort"
                . ' does not know'];
        }
        $about = $driver === 'predis' && !$known
            ? $this->ofPredis($manager->resolve($name)->client())
            : $this->ofPhpRedis($this->seenBy($manager, $driver, $name));
        return isset($about['refused']) ? $about : ['client' => $driver] + $about;
    }

    /** @return array<string, mixed> what the connector of phpredis would connect with */
    private function seenBy(RedisManager $manager, string $driver, string $name): array
    {
        $probe = new RedisProbe();
        $copy = clone $manager;
        $copy->extend($driver, fn () => $probe);
        $copy->resolve($name);
        return $probe->config;
    }

    /**
     * @param array<string, mixed> $config
     * @return array<string, mixed>
     */
    private function ofPhpRedis(array $config): array
    {
        foreach (['serializer' => 0, 'compression' => 0] as $option => $none) {
            if (($config[$option] ?? $none) !== $none) {
                return ['refused' => "its Redis connection sets phpredis' {$option}, which Laravel's queues do not"
                    . ' support: give the queue a Redis connection without it (queue.connections.*.connection)'];
            }
        }
        [$user, $password] = $this->credentials($config);
        $context = (array) ($config['context'] ?? []);
        $about = $this->place($config, (string) ($config['host'] ?? ''), self::PORT) + [
            'username' => $user,
            'password' => $password,
            'database' => (int) ($config['database'] ?? 0),
            'prefix' => (string) ($config['prefix'] ?? ''),
            'timeout_ms' => self::milliseconds($config['timeout'] ?? 0),
            'read_timeout_ms' => self::milliseconds($config['read_timeout'] ?? 0),
            'tls' => self::tls((array) ($context['stream'] ?? $context['ssl'] ?? [])),
        ];
        return isset($config['sentinel_host']) ? $this->sentinelOf($config) + $about : $about + self::noSentinel();
    }

    /** The names are those of the package namoshek/laravel-redis-sentinel. */
    private function sentinelOf(array $config): array
    {
        return [
            'scheme' => 'tcp',
            'host' => '',
            'port' => 0,
            'path' => '',
            'sentinels' => [['scheme' => 'tcp', 'host' => (string) $config['sentinel_host'],
                'port' => (int) ($config['sentinel_port'] ?? self::SENTINEL_PORT)]],
            'sentinel_service' => (string) ($config['sentinel_service'] ?? 'mymaster'),
            'sentinel_username' => (string) ($config['sentinel_username'] ?? ''),
            'sentinel_password' => (string) ($config['sentinel_password'] ?? ''),
        ];
    }

    /** @return array{string, string} */
    private function credentials(array $config): array
    {
        $password = $config['password'] ?? '';
        if (is_array($password)) {
            $both = array_values($password);
            return count($both) > 1 ? [(string) $both[0], (string) $both[1]] : ['', (string) ($both[0] ?? '')];
        }
        // Laravel 8 leaves a user name out.
        $user = version_compare($this->app->version(), '9', '>=') ? (string) ($config['username'] ?? '') : '';
        return (string) $password === '' ? ['', ''] : [$user, (string) $password];
    }

    /** @return array<string, mixed> */
    private function ofPredis(object $client): array
    {
        $options = $client->getOptions();
        $connection = $client->getConnection();
        $prefix = $options->prefix;
        $about = ['prefix' => $prefix === null ? '' : (string) $prefix->getPrefix()];
        if (method_exists($connection, 'getParameters')) {
            return $about + $this->ofPredisNode($connection->getParameters()->toArray(), self::PORT) + self::noSentinel();
        }
        if (!str_ends_with($connection::class, '\SentinelReplication')) {
            return ['refused' => 'its Redis connection is several servers (' . class_basename($connection) . '), of which'
                . ' Cohort serves only those with Sentinel: name the one server that holds the queue'];
        }
        return $about + $this->ofPredisSentinel($connection, (array) ($options->parameters ?? []));
    }

    /** @return array<string, mixed> */
    private function ofPredisNode(array $parameters, int $port): array
    {
        return $this->place($parameters, (string) ($parameters['host'] ?? ''), $port) + [
            'username' => (string) ($parameters['username'] ?? ''),
            'password' => (string) ($parameters['password'] ?? ''),
            'database' => (int) ($parameters['database'] ?? 0),
            'timeout_ms' => self::milliseconds($parameters['timeout'] ?? 0),
            'read_timeout_ms' => self::milliseconds($parameters['read_write_timeout'] ?? 0),
            'tls' => self::tls((array) ($parameters['ssl'] ?? [])),
        ];
    }

    /** @return array<string, mixed> */
    private function ofPredisSentinel(object $connection, array $parameters): array
    {
        $read = static fn (object $own): array => [$own->service, $own->sentinels];
        [$service, $sentinels] = \Closure::bind($read, null, $connection::class)($connection);
        $nodes = [];
        foreach ($sentinels as $one) {
            $one = is_object($one) && method_exists($one, 'getParameters') ? $one->getParameters() : $one;
            $one = is_object($one) ? $one : \Predis\Connection\Parameters::create($one);
            $nodes[] = $this->ofPredisNode($one->toArray(), self::SENTINEL_PORT);
        }
        $master = $this->ofPredisNode($parameters, self::PORT);
        return [
            // The master's place is the Sentinels' to say; how to talk to it is not.
            'host' => '',
            'port' => 0,
            'path' => '',
            'sentinels' => array_map(static fn (array $node): array => array_intersect_key($node, ['scheme' => 1, 'host' => 1, 'port' => 1]), $nodes),
            'sentinel_service' => (string) $service,
            'sentinel_username' => $nodes[0]['username'] ?? '',
            'sentinel_password' => $nodes[0]['password'] ?? '',
        ] + $master;
    }

    /**
     * Scheme, host, port and path of any of the ways they are written.
     *
     * @return array<string, mixed>
     */
    private function place(array $config, string $host, int $port): array
    {
        $scheme = strtolower((string) ($config['scheme'] ?? ''));
        if (preg_match('#^([a-z0-9.]+)://(.*)$#i', $host, $parts)) {
            [, $scheme, $host] = $parts;
        }
        $path = (string) ($config['path'] ?? '');
        if ($scheme === 'unix' || str_starts_with($host, '/')) {
            $path = $scheme === 'unix' && $path !== '' ? $path : $host;
            return ['scheme' => 'unix', 'host' => '', 'port' => 0, 'path' => $path];
        }
        // phpredis also takes the names of single TLS versions.
        $scheme = self::SCHEMES[$scheme] ?? (str_starts_with($scheme, 'tls') ? 'tls' : 'tcp');
        return ['scheme' => $scheme, 'host' => trim($host, '[]'), 'port' => (int) ($config['port'] ?? $port), 'path' => ''];
    }

    /** @return array<string, mixed> */
    private static function tls(array $ssl): array
    {
        $about = [
            'verify_peer' => (bool) ($ssl['verify_peer'] ?? true),
            'verify_peer_name' => (bool) ($ssl['verify_peer_name'] ?? true),
            'allow_self_signed' => (bool) ($ssl['allow_self_signed'] ?? false),
        ];
        foreach (self::TLS_TEXT as $name) {
            $about[$name] = (string) ($ssl[$name] ?? '');
        }
        return $about;
    }

    /** @return array<string, mixed> */
    private static function noSentinel(): array
    {
        return ['sentinels' => [], 'sentinel_service' => '', 'sentinel_username' => '', 'sentinel_password' => ''];
    }

    private static function milliseconds(mixed $seconds): int
    {
        return is_numeric($seconds) && $seconds > 0 ? (int) round($seconds * 1000) : 0;
    }
}
