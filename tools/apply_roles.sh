#!/usr/bin/env bash
# Apply the roles of a machine image to a root file system, twice, without touching this machine. The second time nothing
# may change. What needs hardware or an address outside the system's package repositories is skipped by its tag.
#
#   tools/apply_roles.sh ANSIBLE_BIN IMAGE_FOLDER [ROOTFS]
#
# ROOTFS is a folder made by debootstrap; without it, a copy of this machine's own system that is dropped afterwards
# (an overlay in memory). Needs root. ANSIBLE_BIN is the bin folder of a virtual environment with ansible-core.
set -euo pipefail

if [ "${1:-}" != inside ]; then
  exec unshare --mount --propagation private "$0" inside "$@"
fi
ansible=$2 image=$3 rootfs=${4:-}
work=$(mktemp -d)
mount -t tmpfs -o mode=0755 tmpfs "$work"
trap 'cd / && umount --recursive "$work" 2>/dev/null; rmdir "$work" 2>/dev/null || true' EXIT
mkdir -p "$work"/{root,upper,scratch,state}
if [ -n "$rootfs" ]; then
  mount --bind "$rootfs" "$work/root"
else
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" "$work/root"
fi
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
mount --bind /etc/resolv.conf "$work/root/etc/resolv.conf" 2>/dev/null || true
chmod 1777 "$work/root/tmp"
# Ansible runs here and hands each task to the Python of the other root.
printf '#!/bin/sh\nexec chroot %q /usr/bin/python3 "$@"\n' "$work/root" >"$work/python"
chmod 755 "$work/python"
mkdir -p "$work/root/$work/state"
mount --bind "$work/state" "$work/root/$work/state"
export ANSIBLE_LOCAL_TEMP=$work/state ANSIBLE_REMOTE_TEMP=$work/state ANSIBLE_HOME=$work/state ANSIBLE_NOCOLOR=1
export ANSIBLE_PIPELINING=1 DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
for time in first second; do
  echo "== $time time"
  "$ansible/ansible-playbook" --connection local --inventory localhost, --skip-tags hardware,download \
    --extra-vars "ansible_python_interpreter=$work/python ansible_become=false" "$image/ansible/site.yml"
done
echo "== what is there"
for file in /etc/security/limits.d/90-training.conf /etc/sysctl.d/90-training.conf /etc/trainwright-version-set.json \
  /etc/enroot/enroot.conf; do
  [ ! -e "$work/root$file" ] || sha256sum "$work/root$file" | sed "s|$work/root||"
done
