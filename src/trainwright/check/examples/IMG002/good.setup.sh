#!/bin/bash
set -euo pipefail
curl -fsSL https://raw.githubusercontent.com/aws-samples/aws-parallelcluster-post-install-scripts/9f8e7d6c5b4a39281706f5e4d3c2b1a098765432/docker/postinstall.sh -o /tmp/docker.sh
bash /tmp/docker.sh
