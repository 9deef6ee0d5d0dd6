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

# disks FOLDER: containerd's and kubelet's folders on the disk that is mounted there, now and at every boot. A service does
# it and not fstab: the disk is mounted by services of the image, and containerd must start after that.
disks() {
  cat > /usr/local/sbin/trainwright-disks << 'SCRIPT'
#!/bin/bash
# Binds the folders of containerd and kubelet to a large disk. $1: where the disk is mounted; $2: its UUID.
set -euo pipefail
for _ in $(seq 60); do
  if mountpoint -q "$1"; then break; fi
  sleep 1
done
mountpoint -q "$1" || mount "UUID=${2:?no disk is mounted at $1}" "$1"
for folder in /var/lib/containerd /var/lib/kubelet; do
  there=$1/trainwright/${folder//\//-}
  if mountpoint -q "$folder"; then continue; fi
  install -d -m 0755 "$folder" "${there%/*}"
  if [ ! -d "$there" ]; then
    rm -rf "$there.new"
    cp -a "$folder" "$there.new"
    mv -T "$there.new" "$there"
  fi
  mount --bind "$there" "$folder"
done
SCRIPT
  chmod 0755 /usr/local/sbin/trainwright-disks
  cat > /etc/systemd/system/trainwright-disks.service << UNIT
[Unit]
Description=Container images and pods on a large disk
Wants=dlami-nvme.service
After=dlami-nvme.service
Before=containerd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/trainwright-disks $1 $(findmnt -n -o UUID "$1" || true)

[Install]
RequiredBy=containerd.service kubelet.service
UNIT
  systemctl daemon-reload
  systemctl enable trainwright-disks.service
  /usr/local/sbin/trainwright-disks "$1"
}

main() {
  # The instance's own disks, striped by the image, where there are any; else the second volume.
  disk=
  for folder in /opt/dlami/nvme /opt/sagemaker; do
    if [ -z "$disk" ] && mountpoint -q "$folder"; then disk=$folder; fi
  done
  if [ -n "$disk" ] && ! { mountpoint -q /var/lib/containerd && mountpoint -q /var/lib/kubelet; }; then
    systemctl stop kubelet containerd 2> /dev/null || true
    disks "$disk"
    systemctl start containerd
  fi
  echo "$(date -u +%FT%TZ) trainwright: the node is ready"
}

install -d -m 0755 "$(dirname "$log")"
main 2>&1 | tee -a "$log"
