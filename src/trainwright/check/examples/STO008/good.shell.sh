#!/bin/bash
set -euo pipefail
export ENROOT_CACHE_PATH=/fsx/enroot/cache
export ENROOT_DATA_PATH=/scratch/enroot
enroot import -o /fsx/images/train.sqsh dockerd://train:1.0
