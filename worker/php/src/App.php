<?php

declare(strict_types=1);

namespace Cohort;

/** What the app.php of a plain PHP application returns: its handlers. */
final class App
{
    public readonly ?\Closure $job;
    public readonly ?\Closure $request;

    /**
     * @param callable(Job): void|null         $job     runs one job; see Job for what may become of it
     * @param callable(Request): Response|null $request answers one request; HTTP pools come with a
     *                                                  later version of Cohort, it is not used yet
     */
    public function __construct(?callable $job = null, ?callable $request = null)
    {
        $this->job = $job === null ? null : $job(...);
        $this->request = $request === null ? null : $request(...);
    }
}
