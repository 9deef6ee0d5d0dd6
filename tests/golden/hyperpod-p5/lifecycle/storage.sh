#!/bin/bash
# Mounts the file systems of the spec, now and at every boot. A node without its data must not take jobs: a mount that
# fails fails the node. Runs as root on every node.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=/dev/null
. /etc/trainwright/node

# entry SOURCE FOLDER TYPE OPTIONS: one line of fstab per folder, and the folder mounted.
entry() {
  local line="$1 $2 $3 $4 0 0" try
  install -d -m 0755 "$2"
  if ! grep -qxF "$line" /etc/fstab; then
    awk -v folder="$2" '$2 != folder' /etc/fstab > /etc/fstab.new
    echo "$line" >> /etc/fstab.new
    chmod 0644 /etc/fstab.new
    mv /etc/fstab.new /etc/fstab
  fi
  # A file system that was just made may not answer at once.
  for try in 1 2 3 4 5 6; do
    if mountpoint -q "$2" || mount "$2"; then return; fi
    echo "$2 is not mounted, attempt $try" >&2
    sleep 5
  done
  echo "error: $1 cannot be mounted at $2" >&2
  return 1
}

# open_to_users FOLDER: a new file system belongs to root, and jobs save where its users say. As with /tmp, nobody removes
# what is another's. Modes that somebody has chosen stay.
open_to_users() {
  if [ "${cfn_node_type:?}" = HeadNode ] && [ "$(stat -c '%u %a' "$1")" = "0 755" ]; then chmod 1777 "$1"; fi
}

if ! command -v mount.nfs4 > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 update
  apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 install nfs-common
fi

entry stack-output:lustre-fsx.DnsName@tcp:/stack-output:lustre-fsx.MountName /fsx lustre noatime,flock,_netdev,nofail
open_to_users /fsx

entry stack-output:openzfs-home.DnsName:/fsx /home nfs4 nfsvers=4.2,nconnect=16,noatime,_netdev,nofail

# The image stripes the instance's own disks under this folder where there are any; its service may still be at it.
systemctl start dlami-nvme 2> /dev/null || true
if mountpoint -q /opt/dlami/nvme; then
  entry /opt/dlami/nvme /scratch none bind,nofail,x-systemd.requires=dlami-nvme.service
  chmod 1777 /scratch
fi
