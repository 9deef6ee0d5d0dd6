#!/bin/bash
set -e
torchrun --standalone --nproc_per_node=8 \
    --max-restarts=3 train.py
