# expect: 3:6
# expect: 7:68
FROM ubuntu AS base
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl && rm -rf /var/lib/apt/lists/*
FROM base
ARG EFA_INSTALLER_VERSION=1.43.2
RUN curl -sO https://efa-installer.amazonaws.com/aws-efa-installer-1.37.0.tar.gz
