#!/bin/bash
NVIDIA_DRIVER_VERSION=580.173.02
EFA_INSTALLER_VERSION=1.47.0
curl -fsSO "https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz"
