# expect: 3:6
# expect: 6:68
FROM ubuntu AS base
FROM base
ARG EFA_INSTALLER_VERSION=1.43.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-1.37.0.tar.gz
