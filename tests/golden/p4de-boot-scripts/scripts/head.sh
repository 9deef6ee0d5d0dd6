#!/bin/bash
# Runs this plan's scripts on the head node, in order: when it has been configured, and after each update. ParallelCluster does
# not let the first scripts of a head node change, so this one keeps its address and names the others by their checksums.
# Runs as root. $1: s3://BUCKET/FOLDER with the plan's files.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig

from=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run KEY SHA256: a script of this plan, as it was planned.
run() {
  echo "trainwright: $1" >&2
  aws s3 cp --only-show-errors --region "${cfn_region:?}" "$from/$1" "$work/script"
  echo "$2  $work/script" | sha256sum --check --quiet
  bash "$work/script" "$from"
}
run 4af186c20f31091b/enroot.sh 4af186c20f31091b58dc3baccf7bd44eba923b9d66432182a6850a0cde7d737e
run 7635149ec0644463/docker.sh 7635149ec0644463dabe9ff124c86c6f7771b4f0d3d55e764e22db20938f4eb2
run c400cf0dd8d812df/runtime.sh c400cf0dd8d812df4272f71da6cdabbd981c22c7c4b9e2d5e8f64eba34c15058
