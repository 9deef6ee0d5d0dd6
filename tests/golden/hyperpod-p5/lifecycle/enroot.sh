#!/bin/bash
# Installs enroot 3.5.0 and pyxis 0.20.0, with room for images on a disk that is large enough. Runs as root on every node.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/trainwright/node

# Another boot step may hold the package lock, and a mirror may stumble: wait and retry rather than lose the node.
apt=(apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v enroot > /dev/null; then
  arch=$(dpkg --print-architecture)
  for package in enroot enroot+caps; do
    curl -fsSL --retry 5 -o "$work/$package.deb" \
      "https://github.com/NVIDIA/enroot/releases/download/v3.5.0/${package}_3.5.0-1_$arch.deb"
  done
  "${apt[@]}" update
  "${apt[@]}" install squashfs-tools parallel fuse-overlayfs "$work/enroot.deb" "$work/enroot+caps.deb"
fi
# pyxis is built against the node's own Slurm: a plugin of another version is not loaded.
plugin=/usr/local/lib/slurm/spank_pyxis.so
if [ ! -e "$plugin" ]; then
  "${apt[@]}" install git make gcc
  git clone --quiet --depth 1 --branch v0.20.0 https://github.com/NVIDIA/pyxis.git "$work/pyxis"
  CPPFLAGS='-I /opt/slurm/include' make -C "$work/pyxis"
  CPPFLAGS='-I /opt/slurm/include' make -C "$work/pyxis" install
fi
# The instance's own disks where there are any: an unpacked training image is 20 to 50 GB.
if mountpoint -q /scratch; then store=/scratch/enroot; else store=/var/enroot; fi

install -d -m 1777 "$store" "$store/cache" "$store/data" "$store/tmp" /run/enroot /run/pyxis
install -d -m 0755 /etc/enroot
cat > /etc/enroot/enroot.conf <<CONF
ENROOT_RUNTIME_PATH /run/enroot/user-\$(id -u)
ENROOT_CONFIG_PATH \${HOME}/.config/enroot
ENROOT_CACHE_PATH $store/cache/group-\$(id -g)
ENROOT_DATA_PATH $store/data/user-\$(id -u)
ENROOT_TEMP_PATH $store/tmp
ENROOT_SQUASH_OPTIONS -noI -noD -noF -noX -no-duplicates
ENROOT_ROOTFS_WRITABLE yes
ENROOT_MOUNT_HOME no
ENROOT_RESTRICT_DEV no
CONF
chmod 0644 /etc/enroot/enroot.conf

# A reboot empties /run.
cat > /etc/tmpfiles.d/trainwright-enroot.conf <<'CONF'
d /run/enroot 1777 root root -
d /run/pyxis 1777 root root -
CONF

# Ranks inside a container find each other through these hooks.
for hook in 50-slurm-pmi.sh 50-slurm-pytorch.sh; do
  if [ -f "/usr/share/enroot/hooks.d/$hook" ]; then
    install -D -m 0755 "/usr/share/enroot/hooks.d/$hook" "/etc/enroot/hooks.d/$hook"
  fi
done

# The controller hands this file to every slurmd; the daemons start after this script.
if [ "${cfn_node_type:-}" = HeadNode ]; then
  touch /opt/slurm/etc/plugstack.conf
  grep -qxF "required $plugin" /opt/slurm/etc/plugstack.conf || echo "required $plugin" >> /opt/slurm/etc/plugstack.conf
fi
