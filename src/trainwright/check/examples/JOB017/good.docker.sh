#!/bin/bash
docker run --rm --gpus all --ipc=host -v /mnt/nvme/imagenet:/data -v /fsx/runs:/runs my-trainer:1.4 \
    torchrun --standalone --nproc_per_node=8 train.py --data_path /data/train --log_dir /runs/resnet
