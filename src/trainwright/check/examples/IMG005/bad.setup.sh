#!/bin/bash
# expect: 3:23
NVIDIA_DRIVER_VERSION=570.172.08
CUDA_VERSION=13.0.2
curl -fsSO "https://example.com/NVIDIA-Linux-x86_64-${NVIDIA_DRIVER_VERSION}.run"
apt-get install -y "cuda-toolkit-${CUDA_VERSION}"
