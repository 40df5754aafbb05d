<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\App;
use Cohort\Application;
use Cohort\BootError;
use Cohort\ControlHandler;
use Cohort\Settings;

/** A plain PHP application: an app.php that returns its handlers. */
final class PlainApp implements Application
{
    private function __construct(
        private readonly \Closure $job,
        private readonly Settings $settings,
    ) {
    }

    /**
     * Load the handlers of this directory.
     *
     * @throws BootError app.php returns no Cohort\App; whatever it throws
     */
    public static function boot(string $dir, Settings $settings): self
    {
        EnvFile::load($dir, $settings->text('env_file'));
        $app = (static fn (string $file): mixed => require $file)("{$dir}/app.php");
        if (!$app instanceof App) {
            throw new BootError("{$dir}/app.php returns " . get_debug_type($app) . ', not a Cohort\App; end it with'
                . ' "return new Cohort\App(job: function (Cohort\Job $job): void { … });".');
        }
        if ($app->request !== null) {
            \Cohort\Worker\log('info', "{$dir}/app.php has a request handler: HTTP pools come with a later version"
                . ' of Cohort, it is not used');
        }
        if ($app->job === null) {
            throw new BootError("{$dir}/app.php gives no job handler, and job pools are all there is yet; add"
                . ' "job: function (Cohort\Job $job): void { … }" to its Cohort\App.');
        }
        array_map(class_exists(...), [
            JobLoop::class,
            JobMessage::class,
            QueueDatabase::class,
            \Cohort\ErrorText::class,
            \Cohort\Job::class,
            \Cohort\JobFailed::class,
            \Cohort\LastWords::class,
        ]);
        QueueDatabase::closeShared();
        return new self($app->job, $settings);
    }

    public function kind(): string
    {
        return 'plain';
    }

    public function version(): string
    {
        return PHP_VERSION;
    }

    public function runJobs(): int
    {
        return (new JobLoop($this->job))->run();
    }

    public function keepBooks(): int
    {
        return (new Bookkeeper())->run();
    }

    public function control(): ControlHandler
    {
        return new Control($this->settings);
    }
}
