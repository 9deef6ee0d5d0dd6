# expect: 3:50
FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04
RUN python3 -m pip install "torch==2.6.0+cu124" "torchvision==0.16.0+cu124" \
    --index-url https://download.pytorch.org/whl/cu124
