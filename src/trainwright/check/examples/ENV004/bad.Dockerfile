# expect: 4:18
# expect: 5:27
# The image of our p5.48xlarge nodes.
FROM nvidia/cuda:11.7.1-devel-ubuntu22.04
ENV TORCH_CUDA_ARCH_LIST="8.0 8.6"
RUN pip install torch==2.7.1
