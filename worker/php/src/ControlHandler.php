<?php

declare(strict_types=1);

namespace Cohort;

/** Answers control questions for one kind of application. */
interface ControlHandler
{
    /**
     * @param string               $name 'config', 'push', 'failed.list', 'failed.show',
     *                                   'failed.retry', 'failed.forget', 'keys', 'queue.pause',
     *                                   'queue.resume', 'doctor'
     * @param array<string, mixed> $body the question's arguments
     * @return array<string, mixed> the answer, to be sent as JSON
     *
     * @throws ControlError when the question cannot be answered
     */
    public function answer(string $name, array $body): array;

    /** Called after each question: nothing may stay open or locked until the next one. */
    public function rest(): void;
}
