# expect: 4:26
FROM nvidia/cuda:12.8.1-devel-ubuntu22.04
ARG EFA_INSTALLER_VERSION=1.47.0
ARG AWS_OFI_NCCL_VERSION=v1.13.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz
