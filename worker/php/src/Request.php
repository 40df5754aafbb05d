<?php

declare(strict_types=1);

namespace Cohort;

/** An HTTP request. HTTP pools come with a later version of Cohort. */
final class Request
{
    /**
     * @param string                $method  GET, POST, …
     * @param string                $target  path and query
     * @param array<string, string> $headers names in lower case
     * @param string                $body    bytes
     */
    public function __construct(
        public readonly string $method,
        public readonly string $target,
        public readonly array $headers = [],
        public readonly string $body = '',
    ) {
    }
}
