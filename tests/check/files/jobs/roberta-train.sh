#!/bin/bash
# RoBERTa on p3dn.24xlarge
export FI_PROVIDER=efa
export FI_EFA_TX_MIN_CREDITS=64
export NCCL_TREE_THRESHOLD=0
export NCCL_SOCKET_IFNAME=eth0
export LD_LIBRARY_PATH=/home/ec2-user/nccl/build/lib:$LD_LIBRARY_PATH

TOTAL_UPDATES=500
WARMUP_UPDATES=24000
MAX_SENTENCES=8

torchrun --nproc_per_node=8 --nnodes=2 --node_rank=$SLURM_NODEID \
    --master_addr="$MASTER" --master_port=12234 \
    $(which fairseq-train) /lustre/data/wikitext-103 \
    --arch roberta_large --fp16 --memory-efficient-fp16 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 \
    --lr-scheduler polynomial_decay --lr 0.0006 --warmup-updates $WARMUP_UPDATES \
    --total-num-update $TOTAL_UPDATES --max-update $TOTAL_UPDATES --max-sentences $MAX_SENTENCES \
    --save-dir /lustre/checkpoints --num-workers 2
