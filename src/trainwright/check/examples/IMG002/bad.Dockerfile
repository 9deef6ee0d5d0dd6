# expect: 10:21
FROM nvidia/cuda:12.8.1-devel-ubuntu22.04
ARG EFA_INSTALLER_VERSION=1.43.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz \
    && tar -xf aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz \
    && cd aws-efa-installer \
    && ./efa_installer.sh -y -g -d --skip-kmod --skip-limit-conf --no-verify
RUN git clone https://github.com/NVIDIA/nccl.git /opt/nccl \
    && cd /opt/nccl \
    && git checkout -b v2.27.7-1 \
    && make -j src.build
