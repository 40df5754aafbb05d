<?php

declare(strict_types=1);

namespace Cohort;

/** Reads the arguments of control questions. */
final class Arguments
{
    /**
     * A member that must be text and not empty.
     *
     * @param array<string, mixed> $body
     *
     * @throws ControlError
     */
    public static function text(array $body, string $name): string
    {
        $value = $body[$name] ?? null;
        if (!is_string($value) || $value === '') {
            throw new ControlError("The argument '{$name}' is missing or no text.", 'invalid');
        }
        return $value;
    }

    /**
     * The id of one failed job, a number or a UUID.
     *
     * @param array<string, mixed> $body
     *
     * @throws ControlError
     */
    public static function id(array $body): string
    {
        return self::asId($body['id'] ?? null);
    }

    /**
     * The ids of failed jobs; null = all of them.
     *
     * @param array<string, mixed> $body {"ids": […]} or {"all": true}
     * @return list<string>|null
     *
     * @throws ControlError
     */
    public static function ids(array $body): ?array
    {
        if (($body['all'] ?? false) === true) {
            return null;
        }
        $ids = $body['ids'] ?? null;
        if (!is_array($ids) || $ids === []) {
            throw new ControlError('Name the failed jobs by "ids", or give "all": true.', 'invalid');
        }
        return array_values(array_unique(array_map(self::asId(...), $ids)));
    }

    /**
     * Queues by name of their connection.
     *
     * @param array<string, mixed> $body {"queues": ["CONNECTION:QUEUE", …]}
     * @return array<string, list<string>>
     *
     * @throws ControlError
     */
    public static function queues(array $body): array
    {
        $queues = [];
        foreach ((array) ($body['queues'] ?? []) as $name) {
            $parts = is_string($name) ? explode(':', $name, 2) : [];
            if (count($parts) !== 2) {
                throw new ControlError('A queue is named "CONNECTION:QUEUE" here.', 'invalid');
            }
            $queues[$parts[0]][] = $parts[1];
        }
        return $queues;
    }

    /**
     * How many at most; null when not given.
     *
     * @param array<string, mixed> $body
     */
    public static function limit(array $body): ?int
    {
        $limit = $body['limit'] ?? null;
        return is_numeric($limit) && (int) $limit > 0 ? (int) $limit : null;
    }

    private static function asId(mixed $id): string
    {
        if (is_int($id) || (is_string($id) && $id !== '')) {
            return (string) $id;
        }
        throw new ControlError('The id of a failed job is a number or a UUID.', 'invalid');
    }
}
