#!/bin/bash
set -euo pipefail
# For the documentation: AKIAIOSFODNN7EXAMPLE and hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx are nobody's.
aws sts get-caller-identity
