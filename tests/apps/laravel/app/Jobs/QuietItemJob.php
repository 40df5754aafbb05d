<?php

namespace App\Jobs;

class QuietItemJob extends ItemJob
{
    public $deleteWhenMissingModels = true;
}
