# expect: 3:6
# expect: 8:8
FROM nvcr.io/nvidia/pytorch:25.03-py3
ARG EFA_INSTALLER_VERSION=1.43.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz \
    && tar -xf aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz \
    && cd aws-efa-installer \
    && ./efa_installer.sh -y -g -d --skip-limit-conf --no-verify
