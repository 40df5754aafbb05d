<?php

declare(strict_types=1);

namespace Cohort;

/** The loop of a control worker: answers the agent's questions about the application. */
final class ControlLoop
{
    private const JSON = JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES
        | JSON_INVALID_UTF8_SUBSTITUTE;

    public function __construct(private readonly ControlHandler $handler)
    {
    }

    /**
     * Answer questions until the agent says stop.
     *
     * @param string $introduction JSON for ready()
     * @return int the exit code, 0
     */
    public function run(string $introduction = ''): int
    {
        Worker\ready($introduction);
        while (($message = Worker\next()) !== null) {
            if ($message['type'] !== 'control') {
                Worker\log('warn', "a control worker was given a {$message['type']}; it is ignored");
                continue;
            }
            $this->answer($message);
        }
        return 0;
    }

    /** @param array{ticket: int, name: string, body: string} $message */
    private function answer(array $message): void
    {
        try {
            $answer = $this->handler->answer($message['name'], self::body($message['body']));
            $ok = true;
            $json = json_encode((object) $answer, self::JSON);
        } catch (\Throwable $error) {
            $ok = false;
            $json = json_encode(self::refusal($message['name'], $error), self::JSON);
        } finally {
            $this->rest();
        }
        Worker\reply($message['ticket'], $ok, $json);
    }

    private function rest(): void
    {
        try {
            $this->handler->rest();
        } catch (\Throwable $error) {
            Worker\log('warn', 'closing the control worker\'s connections: ' . ErrorText::head($error));
        }
    }

    /** @return array<string, mixed> */
    private static function body(string $json): array
    {
        if ($json === '') {
            return [];
        }
        $body = json_decode($json, true);
        if (!is_array($body)) {
            throw new ControlError('The arguments are no JSON object.', 'invalid');
        }
        return $body;
    }

    /** @return array{error: string, code: string} */
    private static function refusal(string $name, \Throwable $error): array
    {
        if ($error instanceof ControlError) {
            return ['error' => $error->getMessage(), 'code' => $error->answerCode];
        }
        return ['error' => "{$name}: " . ErrorText::head($error), 'code' => 'failed'];
    }
}
