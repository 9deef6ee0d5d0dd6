#!/bin/bash
# expect: 5:17
# expect: 6:26
set -euo pipefail
export HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh
export AWS_ACCESS_KEY_ID=AKIA2222333344445555
huggingface-cli download model
