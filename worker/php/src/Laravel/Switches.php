<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ControlError;
use Illuminate\Foundation\Application;
use Illuminate\Queue\Worker as LaravelWorker;

/** The switches Laravel keeps for all its workers: restart, maintenance, paused queues. */
final class Switches
{
    private const RESTART = 'illuminate:queue:restart';
    private const PAUSED_ALL = 'illuminate:queues:paused';

    public function __construct(private readonly Application $app)
    {
    }

    /**
     * What they stand at; asked once a second.
     *
     * @param array<string, list<string>> $queues by connection: those to look at
     * @return array{restart: mixed, down: bool, paused: list<string>, paused_all: bool} restart is what
     *         the last queue:restart left, null if there was none; paused as "CONNECTION:QUEUE"
     *
     * @throws ControlError they cannot be read
     */
    public function read(array $queues): array
    {
        return [
            'down' => (bool) $this->reading('maintenance mode', fn () => $this->app->isDownForMaintenance()),
        ] + $this->reading("the cache store {$this->store()}", fn (): array => [
            'restart' => $this->obeys('restartable') ? $this->app->make('cache.store')->get(self::RESTART) : null,
            'paused' => $this->paused($queues),
            'paused_all' => $this->pausedAll(),
        ]);
    }

    /**
     * Pause or resume one queue for all workers of the application, Laravel's own among them.
     *
     * @throws ControlError this version of Laravel cannot
     */
    public function pause(string $connection, string $queue, bool $on): void
    {
        $manager = $this->app->make('queue');
        if (!method_exists($manager, 'pause')) {
            throw new ControlError("Laravel {$this->app->version()} has no pause of queues, which came with 12.40;"
                . ' pause the queue on the agents (cohort pause).', 'unsupported');
        }
        $on ? $manager->pause($connection, $queue) : $manager->resume($connection, $queue);
    }

    /**
     * @param array<string, list<string>> $queues
     * @return list<string>
     */
    private function paused(array $queues): array
    {
        $manager = $this->app->make('queue');
        $paused = [];
        if (method_exists($manager, 'isPaused') && $this->obeys('pausable')) {
            foreach ($queues as $connection => $names) {
                $found = method_exists($manager, 'getPausedQueues')
                    ? $manager->getPausedQueues((string) $connection, $names)
                    : array_filter($names, static fn (string $queue): bool => $manager->isPaused((string) $connection, $queue));
                array_push($paused, ...array_map(static fn (string $queue): string => "{$connection}:{$queue}", array_values($found)));
            }
        }
        return $paused;
    }

    private function pausedAll(): bool
    {
        return method_exists($this->app->make('queue'), 'pauseAll')
            && $this->obeys('pausable')
            && (bool) $this->app->make('cache.store')->get(self::PAUSED_ALL);
    }

    /** Whether the application lets its workers look (Queue::withoutInterruptionPolling(), 12.41). */
    private function obeys(string $switch): bool
    {
        return !property_exists(LaravelWorker::class, $switch) || LaravelWorker::${$switch};
    }

    private function store(): string
    {
        return (string) $this->app->make('config')->get('cache.default');
    }

    private function reading(string $what, \Closure $read): mixed
    {
        try {
            return $read();
        } catch (\Throwable $error) {
            throw new ControlError("The application's queue switches cannot be read from {$what}: "
                . \Cohort\ErrorText::head($error));
        }
    }
}
