"""`up` and `down` ended at any call to AWS, before it or after it was done, and run again: the account is as if nothing
had happened. The run goes on in one process; at each cut point a child is forked, which ends there and starts over."""

from __future__ import annotations

import os
import random
import select
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from standin.harness import Cloud, Cut

CHILDREN = 2  # at once


class Forks:
    """Forks a child at chosen calls; each says by its exit status whether its world ended as it should."""

    def __init__(
        self, cloud: Cloud, chosen: set[tuple[int, str]], after: Callable[[], object], expected: dict[str, list[str]]
    ) -> None:
        self.cloud, self.chosen, self.after, self.expected = cloud, chosen, after, expected
        self.first = cloud.calls()
        self.failed: list[str] = []
        self.running: dict[int, tuple[int, str]] = {}  # a descriptor of the child -> its process id, its cut point
        self.count = 0

    def watch(self, number: int, service: str, action: str, when: str) -> None:
        if (number - self.first, when) not in self.chosen:
            return
        self.count += 1
        name = f"call {number - self.first} {service}:{action}, {when}"
        pid = os.fork()
        if pid == 0:
            self.cloud.world.faults.watch = None
            os.environ["TRAINWRIGHT_HOME"] += f"-{os.getpid()}"  # as if on another machine: AWS holds the state
            raise Cut(name)
        self.running[os.pidfd_open(pid)] = (pid, name)
        if len(self.running) >= CHILDREN:
            self.reap()

    def reap(self) -> None:
        """Wait for one of these children; the process may have others, which are not ours to wait for."""
        ended, _, _ = select.select(list(self.running), [], [])
        for descriptor in ended:
            pid, name = self.running.pop(descriptor)
            os.close(descriptor)
            if os.waitpid(pid, 0)[1] != 0:
                self.failed.append(name)

    def run(self, work: Callable[[], object]) -> None:
        self.cloud.world.faults.watch = self.watch
        try:
            work()
        except Cut:
            self._finish_child()
        self.cloud.world.faults.watch = None
        while self.running:
            self.reap()

    def _finish_child(self) -> None:
        """In the child: start over, compare, and end without a word to pytest."""
        status = 1
        try:
            self.after()
            found = _what_matters(self.cloud)
            wrong = {kind: (found[kind], self.expected[kind]) for kind in found if found[kind] != self.expected[kind]}
            if wrong:
                print("found, expected:", wrong, flush=True)
            status = 1 if wrong else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


def _what_matters(cloud: Cloud) -> dict[str, list[str]]:
    """The census without flow logs: every network that was up leaves its own, by design. Ten minutes later: FSx of the
    stand-in has a time of its own, and may say CREATING of a link whose stack is made."""
    cloud.world.clock.sleep(600)
    return {kind: names for kind, names in cloud.census().items() if kind != "log group"}


def cut(cloud: Cloud, count: int, seed: int, crossed: bool = True, kept: int = 2) -> int:
    """So many cut points on each way on which an ended run can go on; how many there were. `crossed`: also an `up` that
    is followed by `down`, and a `down` that is followed by `up`. `kept`: buckets that are not the cluster's."""
    start = cloud.calls()
    cloud.up()
    whole, calls_up = _what_matters(cloud), cloud.calls() - start
    cloud.down()
    empty, calls_down = _what_matters(cloud), cloud.calls() - start - calls_up
    assert sum(map(len, empty.values())) == kept, f"only the user's bucket and pcluster's own are left: {empty}"
    pick, total = random.Random(seed), 0
    for work, length in ((cloud.up, calls_up), (cloud.down, calls_down)):
        for again, expected in ((cloud.up, whole), (cloud.down, empty)):
            if again != work and not crossed:
                continue
            if work == cloud.down:
                cloud.up()
            points = [(number, when) for number in range(1, length + 1) for when in ("before", "after")]
            forks = Forks(cloud, set(pick.sample(points, min(count, len(points)))), again, expected)
            forks.run(work)
            assert not forks.failed, f"{work.__name__} cut, then {again.__name__}: {forks.failed}"
            total += forks.count
            if work == cloud.up:
                cloud.down()
    return total


def test_an_ended_run_goes_on(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    assert cut(cloud, 3, seed=1, crossed=False) >= 5


@pytest.mark.slow
def test_an_ended_run_goes_on_from_anywhere(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    assert cut(cloud, 52, seed=2) >= 200  # a later run makes a few calls less, so a few points are never reached
