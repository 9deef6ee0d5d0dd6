#!/bin/bash
export HF_TOKEN
python download.py
