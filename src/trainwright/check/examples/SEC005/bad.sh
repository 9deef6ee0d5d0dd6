#!/bin/bash
# expect: 3:32
huggingface-cli login --token "$HF_TOKEN"
python download.py
