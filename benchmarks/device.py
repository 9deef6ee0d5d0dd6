"""Whether this machine's GPU reaches what `predict` assumes: the best matmul over the usual shapes, in bf16 and fp8.

    python benchmarks/device.py [--seconds 2] [--json]

Needs an NVIDIA GPU. Goal: within 5 % of the rate that `predict` counts on for large products: the best anybody measured
times the share that lasts.
"""

from __future__ import annotations

import argparse
import json
import sys

import torch

from trainwright.bench.device import SHAPES, device_rows, peer_rows
from trainwright.bench.machine import result_header
from trainwright.report.device import add_limits, device_text

GOAL = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU here", file=sys.stderr)
        return 2
    rows = device_rows(torch.device("cuda", 0), SHAPES, args.seconds) + peer_rows(args.seconds)
    result = {**result_header("device"), "rows": rows}
    add_limits(result)
    best: dict[str, dict] = {}
    for row in result["rows"]:
        if row["assumed"] and row["value"] > best.get(row["kind"], {"value": 0.0})["value"]:
            best[row["kind"]] = row
    ratios = {kind: row["value"] / row["assumed"] for kind, row in best.items()}
    passed = bool(ratios) and all(abs(ratio - 1) <= GOAL for ratio in ratios.values())
    if args.json:
        print(json.dumps({**result, "ratios": ratios, "passed": passed}))
    else:
        print(device_text(result))
        for kind, ratio in ratios.items():
            print(f"{kind}: {best[kind]['name']} reaches {ratio:.3f} of what predict assumes")
        print("pass" if passed else "FAIL", f"(goal: within {GOAL:.0%})")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
