"""Semantic segmentation on Cityscapes."""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--max-steps", type=int, default=10_000)
args = parser.parse_args()
