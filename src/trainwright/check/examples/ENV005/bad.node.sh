#!/bin/bash
# expect: 4:19
export NCCL_DEBUG=WARN
export LD_PRELOAD=/usr/local/cuda-12.1/lib/libnccl.so
torchrun --nproc_per_node=8 --standalone train.py
