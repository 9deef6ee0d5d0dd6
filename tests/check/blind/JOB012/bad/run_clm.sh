#!/usr/bin/env bash
# continued pretraining on the internal code corpus
set -euo pipefail

MODEL=bigcode/starcoder2-3b
TRAIN=/mnt/efs/code-corpus/train.jsonl
OUT=/mnt/efs/runs/starcoder2-cpt

torchrun --standalone --nproc_per_node=8 run_clm.py \
    --model_name_or_path "$MODEL" \
    --train_file "$TRAIN" \
    --validation_file "$TRAIN" \
    --do_train --do_eval \
    --block_size 4096 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --learning_rate 2e-5 --warmup_steps 200 --max_steps 8000 \
    --eval_strategy steps --eval_steps 500 \
    --save_strategy steps --save_steps 500 --save_total_limit 3 \
    --bf16 --gradient_checkpointing \
    --output_dir "$OUT"
