#!/bin/bash
export NCCL_DEBUG=WARN
export LD_PRELOAD=/usr/local/cuda-12.8/lib/libnccl.so
torchrun --nproc_per_node=8 --standalone train.py
