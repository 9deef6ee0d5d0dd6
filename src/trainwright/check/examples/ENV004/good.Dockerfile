# The image of our p5.48xlarge nodes.
FROM nvidia/cuda:12.8.1-devel-ubuntu22.04
ENV TORCH_CUDA_ARCH_LIST="8.0 9.0"
RUN pip install torch==2.7.1
