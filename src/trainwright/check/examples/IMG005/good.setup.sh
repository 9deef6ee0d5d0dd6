#!/bin/bash
NVIDIA_DRIVER_VERSION=580.173.02
CUDA_VERSION=13.0.2
curl -fsSO "https://example.com/NVIDIA-Linux-x86_64-${NVIDIA_DRIVER_VERSION}.run"
apt-get install -y "cuda-toolkit-${CUDA_VERSION}"
