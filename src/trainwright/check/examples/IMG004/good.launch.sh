#!/bin/bash
set -eu
docker run --rm --gpus all --ipc=host -v /fsx:/fsx train:1.4.0 torchrun --standalone --nproc_per_node=8 /fsx/train.py
