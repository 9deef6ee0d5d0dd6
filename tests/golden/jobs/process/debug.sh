#!/bin/bash
# debug: 2 ranks on this machine. Written by `trainwright submit`.
# Words that a rank's shell is to read, and values with a dollar in them, stand in single quotes on purpose.
# shellcheck disable=SC2016
set -uo pipefail

# The run folder holds everything this job writes.
export TRAINWRIGHT_RUN=/shared/trainwright/runs/debug-20261115-120000-0001

mkdir -p "$TRAINWRIGHT_RUN/logs"
export OMP_NUM_THREADS=4  # a rank has 4 processors; more threads would wait for each other
export PYTHONPATH=/shared/trainwright/runs/debug-20261115-120000-0001/code  # the code that was shipped with the run comes first

event() {
  printf '{"time": %s, "source": "job", "event": "%s", "attempt": %s, "code": %s}\n' \
    "$(date +%s.%N)" "$1" "$attempt" "$2" >> "$TRAINWRIGHT_RUN/events.jsonl"
}

crashes=0
for ((attempt = 0; ; attempt++)); do
  event started 0
  began=$(date +%s)
  # torchrun takes a free port by itself, so any number of jobs fit on one machine.
  TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120 python3 -m torch.distributed.run --standalone --nproc-per-node=2 --no-python \
    bash -c 'exec "$@" >> "$TRAINWRIGHT_RUN/logs/rank-$RANK.log" 2>&1' rank \
    python3 -m trainwright.train \
  --model llama3.1-8b-debug \
  --data builtin:stdlib \
  --steps 30 \
  --sequence 128 \
  --batch 8 \
  --parallel shard=2 \
  --precision fp32 \
  --lr 0.001 \
  --warmup 5 \
  --schedule cosine \
  --min-lr 0.1 \
  --weight-decay 0.1 \
  --beta1 0.9 \
  --beta2 0.95 \
  --clip 1.0 \
  --checkpoint-every 10 \
  --keep-last 2
  code=$?
  # When the newest step was done, by its line in metrics.jsonl.
  stepped=$(tail -n 1 "$TRAINWRIGHT_RUN/metrics.jsonl" 2>/dev/null | sed -n 's/.*"time": \([0-9]*\).*/\1/p')
  # A trainer that writes no such lines shows its progress by a checkpoint.
  if [ -z "$stepped" ] && [ -n "$(find "${TRAINWRIGHT_CHECKPOINTS:-$TRAINWRIGHT_RUN/checkpoints}" -type f \
    -newermt "@$began" -print -quit 2> /dev/null)" ]; then stepped=$began; fi
  # A run that had made progress is worth another try from its last checkpoint; a mistake in the code is not.
  if [ "$code" -ne 0 ] && [ "${stepped:-0}" -ge "$began" ] && ((crashes++ < 3)); then
    event crashed "$code"
    continue
  fi
  break
done
event ended "$code"
echo "$code" > "$TRAINWRIGHT_RUN/exit"
exit "$code"
