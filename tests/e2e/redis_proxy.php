<?php

/*
 * Stands between a client and Redis: redis_proxy.php LISTEN TARGET CUT
 *
 * Both are paths of sockets. While the file CUT is there, the next reply of more than a few bytes is
 * cut in its middle and both ends of that connection are closed; CUT is removed and "cut" is printed.
 */

[, $listen, $target, $cut] = $argv;
$server = stream_socket_server("unix://$listen") ?: exit(1);
$peers = $streams = [];
$forget = function ($stream) use (&$peers, &$streams) {
    $other = $peers[(int) $stream];
    foreach ([$stream, $other] as $one) {
        unset($peers[(int) $one], $streams[(int) $one], $GLOBALS['toClient'][(int) $one]);
        fclose($one);
    }
};
$toClient = [];
while (true) {
    $read = [$server, ...array_values($streams)];
    $write = $except = null;
    stream_select($read, $write, $except, null);
    foreach ($read as $stream) {
        if ($stream === $server) {
            $client = stream_socket_accept($server);
            $redis = stream_socket_client("unix://$target", $code, $why, 5);
            if ($redis === false) {
                fclose($client);
                continue;
            }
            foreach ([[$client, $redis], [$redis, $client]] as [$from, $to]) {
                stream_set_blocking($from, false);
                $streams[(int) $from] = $from;
                $peers[(int) $from] = $to;
            }
            $toClient[(int) $redis] = true;
            continue;
        }
        if (! isset($streams[(int) $stream])) {
            continue;
        }
        $bytes = fread($stream, 1 << 16);
        if ($bytes === '' || $bytes === false) {
            feof($stream) && $forget($stream);
            continue;
        }
        $to = $peers[(int) $stream];
        $cutting = isset($toClient[(int) $stream]) && strlen($bytes) > 64 && is_file($cut);
        if ($cutting) {
            $bytes = substr($bytes, 0, intdiv(strlen($bytes), 2));
        }
        stream_set_blocking($to, true);
        fwrite($to, $bytes);
        stream_set_blocking($to, false);
        if ($cutting) {
            unlink($cut);
            echo "cut\n";
            $forget($stream);
        }
        clearstatcache();
    }
}
