<?php

declare(strict_types=1);

namespace Cohort;

use Cohort\Laravel\LaravelApp;
use Cohort\Plain\PlainApp;

/** Holds the booted application between the zygote's boot and the life of its workers. */
final class Runtime
{
    private static ?Application $app = null;
    private static ?Settings $settings = null;

    /**
     * Find out what kind of application there is and boot it.
     *
     * @param array<string, string> $config what Cohort\Worker\config() gives
     *
     * @throws BootError no application there, or it cannot be booted
     */
    public static function boot(array $config): void
    {
        $settings = new Settings($config);
        $dir = self::enter($settings->text('app'));
        self::$settings = $settings;
        self::$app = match (self::kindOf($dir)) {
            'laravel' => LaravelApp::boot($dir, $settings),
            'plain' => PlainApp::boot($dir, $settings),
        };
    }

    /**
     * Run one worker of this kind.
     *
     * @return int the exit code
     */
    public static function run(string $kind): int
    {
        $app = self::app();
        return match ($kind) {
            'job' => $app->runJobs(),
            'bookkeeper' => $app->keepBooks(),
            'control' => (new ControlLoop($app->control()))->run(self::introduction($app)),
            default => throw new \InvalidArgumentException("there is no worker kind '{$kind}' (job, bookkeeper, control)"),
        };
    }

    public static function app(): Application
    {
        return self::$app ?? throw new \LogicException('no application was booted before the worker was made');
    }

    /** The settings in a worker; null in a process that is none. */
    public static function settings(): ?Settings
    {
        return self::$settings;
    }

    /** The JSON that goes with ready(). */
    public static function introduction(Application $app): string
    {
        return json_encode(
            ['php' => PHP_VERSION, 'kind' => $app->kind(), 'version' => $app->version()],
            JSON_THROW_ON_ERROR,
        );
    }

    private static function enter(string $dir): string
    {
        if ($dir === '') {
            throw new BootError('No application directory was given; name it with --app DIR or apps.NAME.path.');
        }
        $real = realpath($dir);
        if ($real === false || !is_dir($real)) {
            throw new BootError("The application directory {$dir} does not exist or may not be entered.");
        }
        if (!chdir($real)) {
            throw new BootError("The application directory {$real} may not be entered by this user.");
        }
        return $real;
    }

    private static function kindOf(string $dir): string
    {
        if (is_file("{$dir}/artisan") && is_file("{$dir}/bootstrap/app.php")) {
            return 'laravel';
        }
        if (is_file("{$dir}/app.php")) {
            return 'plain';
        }
        throw new BootError(
            "No application in {$dir}: looked for artisan and bootstrap/app.php (Laravel), and for app.php that"
            . ' returns a Cohort\App (plain PHP). Give the directory that holds one of them.'
        );
    }
}
