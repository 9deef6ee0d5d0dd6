#!/bin/bash
set -euo pipefail
pip install torch==2.6.0 torchvision==0.21.0
