<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\Arguments;
use Cohort\ControlError;
use Cohort\ControlHandler;
use Cohort\PhpInfo;
use Illuminate\Contracts\Console\Kernel;
use Illuminate\Foundation\Application;

/** Answers the agent's questions about a Laravel application. */
final class Control implements ControlHandler
{
    public function __construct(private readonly Application $app, private readonly Kernel $artisan)
    {
    }

    public function answer(string $name, array $body): array
    {
        $failed = new FailedJobs($this->app, $this->artisan);
        return match ($name) {
            'config' => $this->config(),
            'push' => $this->push($body),
            'failed.list' => $failed->list(Arguments::limit($body)),
            'failed.show' => $failed->show(Arguments::id($body)),
            'failed.retry' => $failed->retry(Arguments::ids($body)),
            'failed.forget' => $failed->forget(Arguments::ids($body)),
            'keys' => (new Switches($this->app))->read(Arguments::queues($body)),
            'queue.pause', 'queue.resume' => $this->pause($body, $name === 'queue.pause'),
            'doctor' => ['php' => PhpInfo::collect(), 'app' => $this->about()],
            default => throw new ControlError("A Laravel application has no answer to '{$name}'.", 'invalid'),
        };
    }

    public function rest(): void
    {
        Connections::rollBackStray($this->app);
        Connections::disconnectDatabases($this->app);
        Connections::purgeRedis($this->app);
        $this->app->forgetScopedInstances();
    }

    /** @return array<string, mixed> */
    private function config(): array
    {
        return [
            'kind' => 'laravel',
            'version' => $this->app->version(),
            'default' => (string) $this->setting('queue.default'),
            'environment' => (string) $this->app->environment(),
            'connections' => (new QueueConnections($this->app))->all(),
            'notes' => $this->notes(),
        ];
    }

    /**
     * @param array<string, mixed> $body
     * @return array{id: string}
     */
    private function push(array $body): array
    {
        $payload = Arguments::text($body, 'payload');
        $decoded = json_decode($payload, true);
        if (!is_array($decoded) || !is_string($decoded['job'] ?? null)) {
            throw new ControlError('The payload is no job of Laravel: a JSON object with a member "job" is needed'
                . ' (see createPayload of Illuminate\Queue\Queue).', 'invalid');
        }
        $connection = $body['connection'] ?? '';
        $queue = $this->app->make('queue')->connection($connection === '' ? null : (string) $connection);
        $id = $queue->pushRaw($payload, ($body['queue'] ?? '') === '' ? null : (string) $body['queue']);
        return ['id' => (string) $id];
    }

    /**
     * @param array<string, mixed> $body
     * @return array{paused: bool}
     */
    private function pause(array $body, bool $on): array
    {
        $connection = (string) ($body['connection'] ?? '') ?: (string) $this->setting('queue.default');
        (new Switches($this->app))->pause($connection, Arguments::text($body, 'queue'), $on);
        return ['paused' => $on];
    }

    /** @return array<string, mixed> */
    private function about(): array
    {
        $modes = [];
        foreach ((array) $this->setting('database.connections') as $name => $config) {
            if (($config['driver'] ?? '') === 'sqlite') {
                $modes[(string) $name] = (string) ($config['transaction_mode'] ?? 'DEFERRED');
            }
        }
        $redis = (new RedisDoctor($this->app))->examine();
        return [
            'kind' => 'laravel',
            'version' => $this->app->version(),
            'env' => (string) $this->app->environment(),
            'default' => (string) $this->setting('queue.default'),
            'transaction_mode' => (object) $modes,
            'attention' => $redis['attention'],
            'notes' => array_merge($this->notes(), $redis['notes']),
        ];
    }

    /** @return list<string> what an operator should know */
    private function notes(): array
    {
        $notes = [];
        if ($this->app->configurationIsCached()) {
            $notes[] = 'the configuration is cached (php artisan config:cache): the environment file is not read';
        }
        $failed = $this->setting('queue.failed');
        if (!is_array($failed) || in_array($failed['driver'] ?? 'database', [null, 'null'], true)) {
            $notes[] = 'failed jobs are not recorded: queue.failed.driver is null';
        }
        $cache = $this->setting('cache.default');
        if (in_array($this->setting("cache.stores.{$cache}.driver"), ['array', 'null'], true)) {
            $notes[] = "the cache store {$cache} does not outlive a process: queue:restart, maxExceptions and unique"
                . ' jobs need a shared one';
        }
        return $notes;
    }

    private function setting(string $key): mixed
    {
        return $this->app->make('config')->get($key);
    }
}
