#!/bin/bash
# builds the image and unpacks it for enroot
set -euo pipefail
TAG=25.06-r4
docker build -t whisper-train:${TAG} .
enroot import -o /fsx/images/whisper-train-${TAG}.sqsh dockerd://whisper-train:${TAG}
