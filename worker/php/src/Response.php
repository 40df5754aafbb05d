<?php

declare(strict_types=1);

namespace Cohort;

/** An HTTP response. HTTP pools come with a later version of Cohort. */
final class Response
{
    /**
     * @param string                $body    bytes
     * @param int                   $status  HTTP status code
     * @param array<string, string> $headers by name
     */
    public function __construct(
        public readonly string $body = '',
        public readonly int $status = 200,
        public readonly array $headers = [],
    ) {
    }
}
