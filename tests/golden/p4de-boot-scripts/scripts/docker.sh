#!/bin/bash
# Installs Docker 27.5.1 unless the image has one, and on nodes with NVIDIA GPUs the container toolkit 1.19.1-1.
# Runs once a node, as root, when the node has been configured.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/parallelcluster/cfnconfig

# Another boot step may hold the package lock, and a mirror may stumble: wait and retry rather than lose the node.
apt=(apt-get -y -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
export DEBIAN_FRONTEND=noninteractive
install -d -m 0755 /etc/apt/keyrings
# An image with its own docker keeps it: apt would refuse to replace a newer one.
if ! command -v dockerd > /dev/null; then
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  release=$(. /etc/os-release && echo "$VERSION_ID")
  curl -fsSL --retry 5 https://download.docker.com/linux/ubuntu/gpg -o /etc/apt/keyrings/docker.asc
  echo "deb [arch=$(dpkg --print-architecture) signed-by=/etc/apt/keyrings/docker.asc]" \
    "https://download.docker.com/linux/ubuntu $codename stable" > /etc/apt/sources.list.d/docker.list
  "${apt[@]}" update
  engine="5:27.5.1-1~ubuntu.$release~$codename"
  "${apt[@]}" install "docker-ce=$engine" "docker-ce-cli=$engine" "containerd.io=1.7.25-1"
  apt-mark hold docker-ce docker-ce-cli containerd.io
fi
if [ -e /dev/nvidia0 ] && ! command -v nvidia-ctk > /dev/null; then
  curl -fsSL --retry 5 https://nvidia.github.io/libnvidia-container/gpgkey -o /etc/apt/keyrings/nvidia.asc
  echo "deb [signed-by=/etc/apt/keyrings/nvidia.asc]" \
    "https://nvidia.github.io/libnvidia-container/stable/deb/$(dpkg --print-architecture) /" \
    > /etc/apt/sources.list.d/nvidia-container-toolkit.list
  "${apt[@]}" update
  # The four depend on each other's exact version: pinned one by one, apt fails once the repository moves on.
  "${apt[@]}" install "nvidia-container-toolkit=1.19.1-1" "nvidia-container-toolkit-base=1.19.1-1" \
    "libnvidia-container-tools=1.19.1-1" "libnvidia-container1=1.19.1-1"
  apt-mark hold nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1
fi

# Images on the instance's own disks: they fill a root volume quickly.
if mountpoint -q /scratch; then
  install -d -m 0711 /scratch/docker
  install -d -m 0755 /etc/docker
  printf '{"data-root": "%s/docker"}\n' /scratch > /etc/docker/daemon.json
  # The image mounts the disk at every boot, at its own pace: without it docker would fill the root volume.
  install -d -m 0755 /etc/systemd/system/docker.service.d
  cat > /etc/systemd/system/docker.service.d/trainwright.conf << 'UNIT'
[Service]
ExecStartPre=/usr/bin/timeout 120 /bin/sh -c 'until mountpoint -q /scratch; do sleep 1; done'
UNIT
  systemctl daemon-reload
fi
if command -v nvidia-ctk > /dev/null; then
  nvidia-ctk runtime configure --runtime=docker
fi
systemctl enable --now docker
systemctl restart docker
usermod -aG docker "${cfn_cluster_user:?}"
