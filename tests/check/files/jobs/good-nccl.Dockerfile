# syntax=docker/dockerfile:1
ARG CUDA_VERSION=12.8.1
FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu22.04 AS build

ARG EFA_INSTALLER_VERSION=1.43.2
ARG NCCL_VERSION=v2.27.7-1
ARG NCCL_TESTS_VERSION=v2.16.9

RUN apt-get update -y \
    # MPI and ssh for mpirun
    && apt-get install -y --no-install-recommends curl git openssh-server \
    && rm -rf /var/lib/apt/lists/*

RUN cd "$HOME" \
    && curl -O https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz \
    && tar -xf "$HOME/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz" \
    && cd aws-efa-installer \
    && ./efa_installer.sh -y -g -d --skip-kmod --skip-limit-conf --no-verify

RUN git clone -b ${NCCL_VERSION} https://github.com/NVIDIA/nccl.git /opt/nccl \
    && cd /opt/nccl && make -j src.build CUDA_HOME=/usr/local/cuda
RUN git clone https://github.com/NVIDIA/nccl-tests.git /opt/nccl-tests \
    && cd /opt/nccl-tests && git checkout ${NCCL_TESTS_VERSION} && make MPI=1

FROM build
ENV OMPI_MCA_pml=^cm,ucx \
    OMPI_MCA_btl=tcp,self \
    NCCL_SOCKET_IFNAME=^docker,lo,veth \
    LD_PRELOAD=/opt/nccl/build/lib/libnccl.so
