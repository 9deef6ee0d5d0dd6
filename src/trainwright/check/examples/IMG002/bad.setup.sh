#!/bin/bash
# expect: 4:12
set -euo pipefail
curl -fsSL https://raw.githubusercontent.com/aws-samples/aws-parallelcluster-post-install-scripts/main/docker/postinstall.sh -o /tmp/docker.sh
bash /tmp/docker.sh
