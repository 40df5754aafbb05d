<?php

/*
 * The part of Horizon that its queue class shows to a worker, by its documented events: tests look
 * whether Cohort raises them. Horizon itself is in no package these tests can rely on.
 */

namespace Laravel\Horizon\Events {
    class RedisEvent
    {
        public $connectionName;
        public $queue;
        public $payload;

        public function __construct($payload)
        {
            $this->payload = $payload;
        }

        public function connection($connectionName)
        {
            $this->connectionName = $connectionName;
            return $this;
        }

        public function queue($queue)
        {
            $this->queue = $queue;
            return $this;
        }
    }

    class JobReserved extends RedisEvent
    {
    }

    class JobReleased extends RedisEvent
    {
    }

    class JobDeleted extends RedisEvent
    {
        public $job;

        public function __construct($job, $payload)
        {
            $this->job = $job;
            parent::__construct($payload);
        }
    }
}

namespace Laravel\Horizon {
    class RedisQueue extends \Illuminate\Queue\RedisQueue
    {
        protected function event($queue, $event)
        {
            $queue = \Illuminate\Support\Str::replaceFirst('queues:', '', $queue);
            $this->container->make('events')->dispatch($event->connection($this->getConnectionName())->queue($queue));
        }
    }
}
