#!/bin/bash
# expect: 4:24
set -eu
docker run --rm --gpus all -v /fsx:/fsx train:1.4.0 torchrun --standalone --nproc_per_node=8 /fsx/train.py
