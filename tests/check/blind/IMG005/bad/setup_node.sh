#!/bin/bash
# Custom AMI step: driver, CUDA and EFA for the training nodes (Ubuntu 22.04)
set -euxo pipefail
export DEBIAN_FRONTEND=noninteractive

DRIVER_VERSION=570.172.08
CUDA_VERSION=13.0.0
EFA_VERSION=1.43.3

apt-get update
apt-get install -y build-essential dkms linux-headers-$(uname -r)

curl -fsSLo /tmp/driver.run https://us.download.nvidia.com/tesla/${DRIVER_VERSION}/NVIDIA-Linux-x86_64-${DRIVER_VERSION}.run
sh /tmp/driver.run --silent --dkms -m kernel-open

curl -fsSLo /tmp/cuda.run https://developer.download.nvidia.com/compute/cuda/${CUDA_VERSION}/local_installers/cuda_${CUDA_VERSION}_580.65.06_linux.run
sh /tmp/cuda.run --silent --toolkit

curl -fsSL https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_VERSION}.tar.gz | tar xz -C /tmp
cd /tmp/aws-efa-installer && ./efa_installer.sh -y

nvidia-smi
fi_info -p efa
