#!/bin/bash
# expect: 5:17
# expect: 6:26
set -euo pipefail
export HF_TOKEN=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
export AWS_ACCESS_KEY_ID=AKIAZ5Q3LMX7WTVKB2RN
huggingface-cli download model
