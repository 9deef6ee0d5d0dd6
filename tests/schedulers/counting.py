"""A trainer without torch, for tests of job life: ranks meet over TCP each step, rank 0 keeps checkpoints and metrics.

Its loss is a chain in which every step depends on the one before, so a run that lost or repeated one shows it. Like
the real trainer it saves on SIGUSR1 and then says so with exit status 75.
"""

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# torchrun keeps its own store at the port it names.
MEET = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + ("TORCHELASTIC_RUN_ID" in os.environ))
RUN = Path(os.environ["TRAINWRIGHT_RUN"])
stop = False


def notice(*_: object) -> None:
    global stop
    stop = True


def meet() -> list[socket.socket]:
    if RANK == 0:
        server = socket.create_server(MEET)
        return [server.accept()[0] for _ in range(WORLD - 1)]
    for _ in range(300):
        try:
            return [socket.create_connection(MEET, timeout=60)]
        except OSError:
            time.sleep(0.1)
    raise SystemExit("rank 0 is not there")


def agree(peers: list[socket.socket]) -> bool:
    """Wait for every rank; whether any of them was told to stop. A peer that is gone ends this rank too."""
    mine = b"s" if stop else b"g"
    if RANK == 0:
        words = [peer.recv(1) for peer in peers]
        if b"" in words:
            raise SystemExit("a peer is gone")
        word = b"s" if b"s" in [mine, *words] else b"g"
        for peer in peers:
            peer.sendall(word)
        return word == b"s"
    peers[0].sendall(mine)
    word = peers[0].recv(1)
    if not word:
        raise SystemExit("rank 0 is gone")
    return word == b"s"


def save(step: int, value: int) -> None:
    if RANK == 0:
        partial = RUN / "checkpoint.tmp"
        partial.write_text(json.dumps([step, value]))
        partial.replace(RUN / "checkpoint.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--start-seconds", type=float, default=0.0, help="before it listens to signals")
    parser.add_argument("--save-seconds", type=float, default=0.0, help="of rank 0, when it is told to stop")
    options = parser.parse_args()
    time.sleep(options.start_seconds)
    signal.signal(signal.SIGUSR1, notice)
    peers = meet()
    step, value = 0, 1
    if (RUN / "checkpoint.json").exists():
        step, value = json.loads((RUN / "checkpoint.json").read_text())
    print(f"rank {RANK} of {WORLD} on {socket.gethostname()} starts at step {step}", flush=True)
    while step < options.steps:
        time.sleep(options.pause)
        stopping = agree(peers)
        step, value = step + 1, (value * 48271 + step) % 2147483647
        if RANK == 0:
            record = {"step": step, "loss": value / 2147483647, "time": time.time(), "tokens_per_s": 100.0}
            with (RUN / "metrics.jsonl").open("a") as metrics:
                metrics.write(json.dumps(record) + "\n")
        if stopping and RANK == 0:
            time.sleep(options.save_seconds)
        if stopping or step % options.every == 0:
            save(step, value)
        if stopping:
            raise SystemExit(75)
    save(step, value)


main()
