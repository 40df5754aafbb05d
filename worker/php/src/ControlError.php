<?php

declare(strict_types=1);

namespace Cohort;

/** A control question that cannot be answered; the message is for the operator. */
final class ControlError extends \RuntimeException
{
    /**
     * @param string $message what, where, why, what to do
     * @param string $answerCode of the control protocol: 'invalid', 'not_found', 'unsupported', 'failed'
     */
    public function __construct(string $message, public readonly string $answerCode = 'failed')
    {
        parent::__construct($message);
    }

    public static function notFound(string $id): self
    {
        return new self("There is no failed job with id {$id}; `cohort failed list` shows them.", 'not_found');
    }
}
