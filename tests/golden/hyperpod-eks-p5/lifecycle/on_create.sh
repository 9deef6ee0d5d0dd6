#!/bin/bash
# What HyperPod runs on every node of cluster hyperpod-eks-p5 when it is made, as root, before the node joins EKS: container images
# and the pods' own disks go to a disk that is large enough. Safe to run again.
set -euo pipefail
shopt -s inherit_errexit
export HOME=${HOME:-/root} # HyperPod sets none
log=/var/log/provision/provisioning.log # HyperPod sends this file to CloudWatch

# own SOURCE [ARGUMENT...]: a script that the spec names, from S3 or the web.
own() {
  local source=$1 script
  shift
  script=$(mktemp)
  case $source in
    s3://*) aws s3 cp --only-show-errors "$source" "$script" ;;
    *) curl -fsSL --retry 5 -o "$script" "$source" ;;
  esac
  bash "$script" "$@"
  rm -f "$script"
}

# move FOLDER: its content onto the disk, under the same name.
move() {
  local there=$disk/${1//\//-}
  mountpoint -q "$1" && return
  install -d -m 0755 "$1" "$there"
  cp -a "$1/." "$there/"
  grep -qF " $1 none bind" /etc/fstab || echo "$there $1 none bind,nofail 0 0" >> /etc/fstab
  mount "$1"
}

main() {
  # The instance's own disks, striped by the image, where there are any; else the second volume.
  disk=
  for folder in /opt/dlami/nvme /opt/sagemaker; do
    if [ -z "$disk" ] && mountpoint -q "$folder"; then disk=$folder/trainwright; fi
  done
  if [ -n "$disk" ] && ! { mountpoint -q /var/lib/containerd && mountpoint -q /var/lib/kubelet; }; then
    systemctl stop kubelet containerd 2> /dev/null || true
    move /var/lib/containerd
    move /var/lib/kubelet
    systemctl start containerd
  fi
  echo "$(date -u +%FT%TZ) trainwright: the node is ready"
}

install -d -m 0755 "$(dirname "$log")"
main 2>&1 | tee -a "$log"
