"""Load: every GPU multiplies for half a minute, and its results and its speed are compared with the others'."""

from __future__ import annotations

import json
import statistics
import sys

from trainwright.health.checks.software import torch_screen
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, skipped, warned, worst_outcome

BURN_SECONDS = 30.0
SLOW = 0.92  # of the median; GPUs of one node differ by two or three per cent
# Every GPU at once, each in a thread of its own. The same operands give the same bits each time on a sound GPU.
BURN = """
import json, sys, threading, time, torch
seconds, results = float(sys.argv[1]), {}
def burn(index):
    torch.manual_seed(1)
    device = torch.device("cuda", index)
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16).to(device) for _ in range(2))
    wanted = a @ b
    torch.cuda.synchronize(device)
    count = wrong = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            made = a @ b
        wrong += int(not torch.equal(made, wanted))
        count += 20
    results[index] = {"tflops": 2 * 8192**3 * count / (time.perf_counter() - began) / 1e12, "wrong": wrong}
threads = [threading.Thread(target=burn, args=(i,)) for i in range(torch.cuda.device_count())]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(results))
"""


@check("gpu.burn", action="isolate", needs=("gpu",), suite="burn", seconds=45.0)
def burn(node: Node, profile: Profile) -> Outcome:
    """Under full load every GPU computes the same bits each time, as fast as the others."""
    screen, reason = torch_screen(node)
    if screen is None or not screen["gpus"]:
        return skipped(reason or "PyTorch sees no GPU")
    output = node.run(sys.executable, "-c", BURN, str(BURN_SECONDS), seconds=BURN_SECONDS * 4)
    try:
        gpus = json.loads(output.out.splitlines()[-1])
    except (ValueError, IndexError):
        return failed(f"the load did not finish: {output.err.strip().splitlines()[-1:] or output.complaint}", "reset")
    median = statistics.median(gpu["tflops"] for gpu in gpus.values())
    outcomes = []
    for index, gpu in gpus.items():
        if gpu["wrong"]:
            outcomes.append(failed(f"GPU {index} computed {gpu['wrong']} wrong results"))
        elif gpu["tflops"] < SLOW * median:
            outcomes.append(warned(f"GPU {index} reached {gpu['tflops']:.0f} TFLOP/s, the median is {median:.0f}"))
    return worst_outcome(outcomes, f"{median:.0f} TFLOP/s per GPU, no wrong result")
