<?php

return ['driver' => 'array', 'lifetime' => 120, 'expire_on_close' => false, 'cookie' => 'session'];
