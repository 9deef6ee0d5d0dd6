#!/bin/bash
set -euo pipefail
registry=$(aws sts get-caller-identity --query Account --output text).dkr.ecr.us-east-2.amazonaws.com
docker build -t llama-trainer:v1.4 .
docker tag llama-trainer:v1.4 "$registry/llama-trainer:v1.4"
docker push "$registry/llama-trainer:v1.4"
docker build -t bert-trainer:v2 -f bert.Dockerfile .
enroot import -o /fsx/images/llama-trainer.sqsh dockerd://llama-trainer:v1.4
