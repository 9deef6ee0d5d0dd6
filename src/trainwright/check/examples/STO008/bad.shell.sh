#!/bin/bash
# expect: 6:26
# expect: 7:25
# expect: 8:18
set -euo pipefail
export ENROOT_CACHE_PATH=/var/cache/enroot
export ENROOT_DATA_PATH=/tmp/enroot
enroot import -o /tmp/train.sqsh dockerd://train:1.0
