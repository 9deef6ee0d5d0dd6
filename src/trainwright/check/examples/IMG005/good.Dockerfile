FROM nvidia/cuda:12.8.1-devel-ubuntu22.04
ARG EFA_INSTALLER_VERSION=1.47.0
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz
