<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Bus\BatchRepository as BatchRepositoryContract;
use Illuminate\Bus\DatabaseBatchRepository;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Database\DetectsConcurrencyErrors;

/**
 * Laravel's batch repository that counts again when another worker was in the way.
 *
 * Its count reads and then writes in one transaction. Two workers that end jobs of one batch at the
 * same time make SQLite refuse one of them at once ("database is locked"), and other databases
 * report a deadlock; the count would be lost, and the batch would never end.
 */
class BatchRepository extends DatabaseBatchRepository
{
    use DetectsConcurrencyErrors;

    private const PATIENCE_NS = 10_000_000_000;
    private const PAUSE_MIN_US = 500;
    private const PAUSE_MAX_US = 20_000;

    /** Put it in the place of the application's, unless that is one of its own making. */
    public static function install(Application $app): void
    {
        $app->extend(BatchRepositoryContract::class, static function (object $own): object {
            if ($own::class !== DatabaseBatchRepository::class) {
                return $own;
            }
            $take = static fn (): array => [$own->factory, $own->connection, $own->table];
            return new self(...\Closure::bind($take, null, DatabaseBatchRepository::class)());
        });
    }

    protected function updateAtomicValues(string $batchId, \Closure $callback)
    {
        $until = hrtime(true) + self::PATIENCE_NS;
        while (true) {
            try {
                return parent::updateAtomicValues($batchId, $callback);
            } catch (\Throwable $error) {
                if (!$this->mayRepeat($error) || hrtime(true) >= $until) {
                    throw $error;
                }
            }
            usleep(random_int(self::PAUSE_MIN_US, self::PAUSE_MAX_US));
        }
    }

    /** Inside a transaction of the job the whole of it would have to be repeated, which is the job's. */
    private function mayRepeat(\Throwable $error): bool
    {
        return $this->connection->transactionLevel() === 0 && $this->causedByConcurrencyError($error);
    }
}
