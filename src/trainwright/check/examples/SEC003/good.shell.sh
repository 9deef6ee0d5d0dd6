#!/bin/bash
set -euo pipefail
HF_TOKEN="$(aws secretsmanager get-secret-value --secret-id hf --query SecretString --output text)"
export HF_TOKEN
huggingface-cli download model
