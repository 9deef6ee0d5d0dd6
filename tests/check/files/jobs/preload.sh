#!/bin/bash
# Bring a folder of a linked bucket into Lustre before training.
set -euo pipefail
folder=${1:-/fsx/data}
workers=${WORKERS:-16}
if [ "$#" -gt 1 ]; then
    echo "usage: $0 [folder]" >&2
    exit 2
fi
find "$folder" -type f -print0 | xargs -0 -n 64 -P "$workers" sudo lfs hsm_restore
while true; do
    left=$(find "$folder" -type f -print0 | xargs -0 -n 64 sudo lfs hsm_state | grep -c released || true)
    if [ "$left" -eq 0 ]; then break; fi
    sleep 30
done
