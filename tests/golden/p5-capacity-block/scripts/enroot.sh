#!/bin/bash
# Switches on enroot and pyxis, which the ParallelCluster image ships but leaves off, with room for images on a disk
# that is large enough. Runs once a node, as root, when the node has been configured.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig

examples=/opt/parallelcluster/examples
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

# Slurm's own folder is shared by the head node; compute nodes see what it holds.
if [ "${cfn_node_type:-}" = HeadNode ]; then
  install -d -m 0755 /opt/slurm/etc/plugstack.conf.d
  install -m 0644 "$examples/spank/plugstack.conf" /opt/slurm/etc/plugstack.conf
  install -m 0644 "$examples/pyxis/pyxis.conf" /opt/slurm/etc/plugstack.conf.d/pyxis.conf
  /opt/slurm/bin/scontrol reconfigure
fi
