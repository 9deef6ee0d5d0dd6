#!/bin/bash
# What HyperPod runs on every node of cluster hyperpod-p5 when it is made, as root, in the folder of these files: the steps
# below, in order. A step that fails fails the node. Safe to run again: sudo bash /opt/trainwright/lifecycle/on_create.sh
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")"
export HOME=${HOME:-/root} # HyperPod sets none

log=/var/log/provision/provisioning.log # HyperPod sends this file to CloudWatch
config=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
facts=/etc/trainwright/node
from=s3://stack-output:bucket.BucketName/trainwright/hyperpod-p5

# step NAME: one script of this folder.
step() {
  echo "$(date -u +%FT%TZ) trainwright: $1"
  bash "./$1" "$from"
}

# own SOURCE [ARGUMENT...]: a script that the spec names, from S3 or the web.
own() {
  local source=$1 script
  shift
  script=$(mktemp)
  echo "$(date -u +%FT%TZ) trainwright: $source"
  case $source in
    s3://*) aws s3 cp --only-show-errors "$source" "$script" ;;
    *) curl -fsSL --retry 5 -o "$script" "$source" ;;
  esac
  bash "$script" "$@"
  rm -f "$script"
}

# The network is still being set up when HyperPod calls: wait until names are found.
wait_for_names() {
  local waited=0
  until getent hosts s3.us-east-2.amazonaws.com > /dev/null; do
    [ "$waited" -lt 120 ] || { echo "error: the node cannot find s3.us-east-2.amazonaws.com: are DNS and the way out of the subnet set up?"; return 1; }
    sleep 2
    waited=$((waited + 2))
  done
}

# The files are in a folder that HyperPod removes: keep them, to run a step again or to read it.
keep() {
  install -d -m 0755 /opt/trainwright
  if [ "$PWD" != /opt/trainwright/lifecycle ]; then
    rm -rf /opt/trainwright/lifecycle
    cp -r . /opt/trainwright/lifecycle
  fi
}

main() {
  wait_for_names
  keep
  install -d -m 0755 /etc/trainwright
  read -ra addresses <<< "$(hostname -I)"
  python3 node_facts.py "$config" provisioning_parameters.json "${addresses[@]}" > "$facts.new"
  mv "$facts.new" "$facts"
  # shellcheck source=/dev/null
  . "$facts"
  step storage.sh # file systems, now and at every boot
  step users.sh # accounts under the same numbers on every node
  step enroot.sh # containers by Slurm: srun --container-image
  step slurm.sh # Slurm's daemons, with the settings of the spec
  if [ "${cfn_node_type:?}" = HeadNode ]; then step runtime.sh; fi # PyTorch for the jobs, once, on the shared file system
  echo "$(date -u +%FT%TZ) trainwright: the node is ready"
}

install -d -m 0755 "$(dirname "$log")"
main 2>&1 | tee -a "$log"
