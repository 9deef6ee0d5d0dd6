#!/bin/bash
# 3B dense with grouped-query attention, one node
set -e

TOKENIZER=/data/tokenizers/sp64k.model
DATA=/data/mix/v3/text_document
OUT=/data/ckpt/dense-3b

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 2560
    --ffn-hidden-size 10240
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 4096
    --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope
)

TRAIN_ARGS=(
    --micro-batch-size 2
    --global-batch-size 256
    --train-iters 60000
    --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 1000
    --bf16
)

torchrun --standalone --nproc_per_node=8 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}" \
    --tensor-model-parallel-size 2 \
    --tokenizer-type SentencePieceTokenizer --tokenizer-model $TOKENIZER \
    --data-path $DATA --split 990,8,2 \
    --save $OUT --load $OUT --save-interval 500 --eval-interval 500 --eval-iters 10
