FROM ubuntu:22.04 AS base
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl && rm -rf /var/lib/apt/lists/*
FROM base
ARG EFA_INSTALLER_VERSION=1.43.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz
