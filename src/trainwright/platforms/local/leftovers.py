"""Clusters that outlived who started them: found by their mark wherever their folder is, and ended on request.

A cluster that belongs to one process (a demo, a test, a step of CI) names it in $TRAINWRIGHT_ENDS_WITH. A small keeper
waits for that process, also where it is killed without warning, and takes the cluster down."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.platforms.local import daemons, state
from trainwright.platforms.local.state import Record
from trainwright.schedulers.environments import environments

OWNER = "TRAINWRIGHT_ENDS_WITH"
ROLE = "keeper"


@dataclass(frozen=True)
class Leftover:
    """A cluster that runs and is not one of this home."""

    name: str
    home: str  # $TRAINWRIGHT_HOME that finds it
    there: bool  # whether its folder still is
    pids: tuple[int, ...]

    @property
    def fix(self) -> str:
        return f"TRAINWRIGHT_HOME={self.home} trainwright down {self.name}" if self.there else "trainwright down --left"


def start_keeper(record: Record) -> None:
    """Tie the cluster to the process that $TRAINWRIGHT_ENDS_WITH names, if it names one."""
    owner = os.environ.get(OWNER, "")
    if owner.isdigit() and Path(f"/proc/{owner}").exists():
        words = [sys.executable, "-m", "trainwright.platforms.local.leftovers", record.cluster.name, record.identity]
        daemons.launch(record, ROLE, [*words, owner])


def keep(name: str, identity: str, owner: int) -> None:
    """Wait until a process ends, then take its cluster down, if that is still the same one."""
    from trainwright.platforms.local import life

    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(owner)
        select.select([descriptor], [], [])
    record = state.read(name)
    if record and record.identity == identity:
        life.down(name, force=True)


def leftovers() -> list[Leftover]:
    """The clusters of this user that run in another home, or whose folder is gone."""
    groups: dict[str, dict[int, str]] = {}
    for pid, identity, conf in _marked():
        groups.setdefault(identity, {})[pid] = conf
    own = {record.identity for name in state.names() if (record := state.read(name))}
    return [_leftover(pids) for identity, pids in groups.items() if identity not in own]


def end(left: Leftover, seconds: float = 10.0) -> None:
    """Kill what is left of a cluster whose folder is gone, and whatever those processes started."""
    deadline = time.monotonic() + seconds
    pids = set(left.pids)
    while pids and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        pids = {pid for pid, _, _ in _marked() if pid in left.pids}


def _leftover(pids: dict[int, str]) -> Leftover:
    folder = Path(os.path.realpath(next(iter(pids.values())))).parents[1]  # …/clusters/NAME/etc/slurm.conf
    return Leftover(folder.name, str(folder.parents[1]), (folder / "cluster.json").exists(), tuple(sorted(pids)))


def _marked() -> Iterator[tuple[int, str, str]]:
    """Every process of a local cluster: its pid, the cluster's identity and its slurm.conf."""
    for pid, variables in environments():
        pairs = (word.partition(b"=") for word in variables)
        words = {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}
        if state.MARK in words and "SLURM_CONF" in words:
            yield pid, words[state.MARK], words["SLURM_CONF"]


if __name__ == "__main__":
    keep(sys.argv[1], sys.argv[2], int(sys.argv[3]))
