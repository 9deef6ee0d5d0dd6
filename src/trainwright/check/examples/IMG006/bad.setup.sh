#!/bin/bash
# expect: 5:13
set -euo pipefail
pip install torch==2.6.0
pip install torchvision==0.16.0
