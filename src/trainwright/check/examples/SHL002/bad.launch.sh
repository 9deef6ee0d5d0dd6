#!/bin/bash
# expect: 5:1
set -e
for seed in 1 2 3; do
torchrun --standalone --nproc_per_node=8 train.py --seed "$seed
done
