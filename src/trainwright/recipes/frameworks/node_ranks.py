"""Starts the ranks of one node, for a framework whose image has no torchrun. Every node of a job runs this once:

    NODE_RANK=0 MASTER_ADDR=first-node MASTER_PORT=29400 python3 node_ranks.py NODES PROCESSES WORD...

Each rank gets its place in the variables that torchrun gives. The first rank that fails ends the others, and its exit
status is the node's; a rank that saved and wants to go on ends none. SIGTERM goes to all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

SAVED = 75  # exit status of a rank that saved because the job is about to end


def started(nodes: int, processes: int, words: list[str]) -> dict[int, subprocess.Popen[bytes]]:
    """The ranks of this node, by the ids of their processes."""
    ranks = {}
    node = int(os.environ["NODE_RANK"])
    for local in range(processes):
        place = {
            "RANK": str(node * processes + local), "LOCAL_RANK": str(local), "WORLD_SIZE": str(nodes * processes),
            "LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": str(node),
        }  # fmt: skip
        rank = subprocess.Popen(words, env={**os.environ, **place})
        ranks[rank.pid] = rank
    return ranks


def main(nodes: int, processes: int, words: list[str]) -> int:
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    stopped = False

    def end(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for pid in ranks:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    ranks |= started(nodes, processes, words)
    if stopped:
        end()  # those that were started after the signal
    failed = saved = 0
    while ranks:
        pid, raw = os.wait()  # as the first process of a container it also takes in what others left
        if ranks.pop(pid, None) is None:
            continue
        code = os.waitstatus_to_exitcode(raw)
        if code == SAVED:
            saved = code
        elif code and not failed:
            failed = code if code > 0 else 128 - code
            end()
    return failed or saved


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
