<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\Application as CohortApplication;
use Cohort\BootError;
use Cohort\ControlHandler;
use Cohort\Settings;
use Illuminate\Contracts\Console\Kernel;
use Illuminate\Foundation\Application;

/** A Laravel application, 8.83 to 13, booted as its artisan boots it. */
final class LaravelApp implements CohortApplication
{
    /** Classes every job needs, loaded before the fork so that workers share them. */
    private const WARM = [
        AgentJob::class,
        AgentJobs::class,
        AgentWorker::class,
        Worker::class,
        SqliteJob::class,
        RedisJob::class,
        Connections::class,
        FailedJobLog::class,
        \Cohort\ErrorText::class,
        \Cohort\LastWords::class,
        \Illuminate\Bus\Dispatcher::class,
        \Illuminate\Bus\Queueable::class,
        \Illuminate\Database\DatabaseManager::class,
        \Illuminate\Database\SQLiteConnection::class,
        \Illuminate\Pipeline\Pipeline::class,
        \Illuminate\Queue\CallQueuedHandler::class,
        \Illuminate\Queue\DatabaseQueue::class,
        \Illuminate\Queue\RedisQueue::class,
        \Illuminate\Queue\InteractsWithQueue::class,
        \Illuminate\Queue\SerializesModels::class,
        \Illuminate\Queue\WorkerOptions::class,
        \Illuminate\Queue\Connectors\DatabaseConnector::class,
        \Illuminate\Queue\Events\JobAttempted::class,
        \Illuminate\Queue\Events\JobExceptionOccurred::class,
        \Illuminate\Queue\Events\JobFailed::class,
        \Illuminate\Queue\Events\JobPopped::class,
        \Illuminate\Queue\Events\JobPopping::class,
        \Illuminate\Queue\Events\JobProcessed::class,
        \Illuminate\Queue\Events\JobProcessing::class,
        \Illuminate\Queue\Events\JobReleasedAfterException::class,
        \Illuminate\Queue\Events\Looping::class,
        \Illuminate\Queue\Jobs\DatabaseJobRecord::class,
        \Illuminate\Queue\Jobs\JobName::class,
        \Illuminate\Support\Carbon::class,
    ];

    private function __construct(
        private readonly Application $app,
        private readonly Kernel $kernel,
        private readonly Settings $settings,
    ) {
    }

    /**
     * Boot the application of this directory.
     *
     * @throws BootError no autoloader or no application came of it; whatever the application throws
     */
    public static function boot(string $dir, Settings $settings): self
    {
        self::pretendArtisan();
        if (is_file("{$dir}/vendor/autoload.php")) {
            require_once "{$dir}/vendor/autoload.php";
        }
        $app = require "{$dir}/bootstrap/app.php";
        if (!$app instanceof Application) {
            throw new BootError("{$dir}/bootstrap/app.php does not return the application"
                . ' (an Illuminate\Foundation\Application).');
        }
        self::chooseEnvironment($app, $dir, $settings->text('env_file'));
        $kernel = $app->make(Kernel::class);
        $kernel->bootstrap();
        $laravel = new self($app, $kernel, $settings);
        $laravel->warm();
        // Closed here, while there is no child: closing in a child could disturb the parent's session.
        Connections::forgetInherited($app);
        return $laravel;
    }

    public function kind(): string
    {
        return 'laravel';
    }

    public function version(): string
    {
        return $this->app->version();
    }

    public function runJobs(): int
    {
        Connections::forgetInherited($this->app);
        BatchRepository::install($this->app);
        return Worker::from($this->app, $this->settings)->serve();
    }

    public function keepBooks(): int
    {
        Connections::forgetInherited($this->app);
        BatchRepository::install($this->app);
        return Bookkeeper::from($this->app, $this->settings)->settleOne();
    }

    public function control(): ControlHandler
    {
        Connections::forgetInherited($this->app);
        return new Control($this->app, $this->kernel);
    }

    /** What artisan defines and what console code looks at. */
    private static function pretendArtisan(): void
    {
        defined('LARAVEL_START') || define('LARAVEL_START', microtime(true));
        $_SERVER['argv'] = ['artisan', 'queue:work'];
        $_SERVER['argc'] = 2;
        // Set by PHP's own command line, missing in an embedded one; Symfony's console asks for them.
        foreach (['PHP_SELF', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_TRANSLATED'] as $name) {
            $_SERVER[$name] ??= 'artisan';
        }
        if (PHP_SAPI !== 'cli') {
            putenv('APP_RUNNING_IN_CONSOLE=true');
            $_ENV['APP_RUNNING_IN_CONSOLE'] = $_SERVER['APP_RUNNING_IN_CONSOLE'] = 'true';
        }
    }

    private static function chooseEnvironment(Application $app, string $dir, string $file): void
    {
        if ($file === '') {
            return;
        }
        $path = str_starts_with($file, '/') ? $file : "{$dir}/{$file}";
        if (!is_readable($path) || is_dir($path)) {
            throw new BootError("The environment file {$path} does not exist or may not be read by this user;"
                . ' correct env_file or create it.');
        }
        $app->useEnvironmentPath(dirname($path));
        $app->loadEnvironmentFrom(basename($path));
    }

    private function warm(): void
    {
        foreach (self::WARM as $class) {
            // Some came with later versions, and some are traits.
            class_exists($class) || trait_exists($class);
        }
        $this->app->make('queue.worker');
    }
}
