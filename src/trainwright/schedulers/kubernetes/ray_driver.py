"""The driver of a RayJob: starts the job's command once on every node of the Ray cluster, prints what the ranks print,
and ends as they end. The text of this file travels in a variable of the head pod, so it needs Python's standard library
and Ray, in any image."""

from __future__ import annotations

import importlib
import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any


class Node:
    """One node's part of the job."""

    def place(self) -> tuple[str, int]:
        """This node's address, and a port of it that is free."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        ray: Any = importlib.import_module("ray")
        return str(ray.util.get_node_ip_address()), int(port)

    def run(self, command: list[str], environment: dict[str, str]) -> Iterator[str | int]:
        """The lines of the command, then its exit status."""
        words = []
        for word in command:
            for name, value in environment.items():
                word = word.replace(f"$({name})", value)
            words.append(word)
        process = subprocess.Popen(
            words, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        note("node", process.pid)
        assert process.stdout is not None
        for line in process.stdout:
            yield line.rstrip("\n")
        yield process.wait()


def note(process: str, pid: int) -> None:
    """Leaves the id of a process where the pod's preStop hook looks for it."""
    with open(os.path.join(tempfile.gettempdir(), f"trainwright-{process}.pid"), "w", encoding="ascii") as file:
        file.write(str(pid))


def main(nodes: int, gpus: int, command: list[str]) -> int:
    ray: Any = importlib.import_module("ray")
    placing: Any = importlib.import_module("ray.util.placement_group")
    note("driver", os.getpid())
    ray.init(address="auto", log_to_driver=False)
    whole = {"CPU": 1, **({"GPU": gpus} if gpus else {})}
    group = placing.placement_group([whole] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    strategy = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
    made = [
        ray.remote(Node).options(num_cpus=1, num_gpus=gpus, scheduling_strategy=strategy(group, index)).remote()
        for index in range(nodes)
    ]
    master, port = ray.get(made[0].place.remote())
    codes: queue.Queue[int] = queue.Queue()

    def follow(index: int) -> None:
        code = 1
        try:
            place = {"NODE_RANK": str(index), "MASTER_ADDR": master, "MASTER_PORT": str(port)}
            for part in made[index].run.options(num_returns="streaming").remote(command, place):
                said = ray.get(part)
                if isinstance(said, int):
                    code = said
                else:
                    print(said, flush=True)
        except ray.exceptions.RayError as error:
            print(f"node {index} is lost: {error}", file=sys.stderr, flush=True)
        codes.put(code)

    for index in range(nodes):
        threading.Thread(target=follow, args=(index,), daemon=True).start()
    # The first failure ends the job, and Ray ends the other nodes with it: they would only wait for each other.
    return next((code for _ in range(nodes) if (code := codes.get())), 0)


if __name__ == "__main__":
    job = json.loads(os.environ["TRAINWRIGHT_RAY_JOB"])
    sys.exit(main(job["nodes"], job["gpus"], job["command"]))
