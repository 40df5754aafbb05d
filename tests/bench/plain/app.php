<?php

/* The empty job of the row handover. */

return new Cohort\App(job: static function (Cohort\Job $job): void {
});
