"""Profiles a few steps of some ranks with torch's profiler. Our trainer calls `StepProfiler`. Any other Python script
is profiled without a change, its steps counted by its optimizer; this file stands alone, so that a run can carry it:

    TRAINWRIGHT_PROFILE='steps=10..12 ranks=0' torchrun ... trainwright/train/profile.py train.py --its --own --words

A trace per rank goes to `profile/rank-00000.json.gz` in the run folder, in the format of Chrome and Perfetto."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_STEPS = 20  # a trace has some MB per step
FOLDER, ASKED = "profile", "profile.request"  # in the run folder
LOOK_SECONDS = 5.0  # between two looks for a request
VARIABLE = "TRAINWRIGHT_PROFILE"
EXAMPLE = "steps=10..12 ranks=0,8"


@dataclass(frozen=True)
class ProfileRequest:
    """Which steps (counted from 1) of which ranks."""

    first: int
    last: int
    ranks: tuple[int, ...] = (0,)


def parse_request(text: str) -> ProfileRequest:
    """`steps=10..12 ranks=0,8`; a ValueError says what is wrong."""
    words = dict(word.partition("=")[::2] for word in text.split())
    unknown = sorted(set(words) - {"steps", "ranks"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known")
    steps = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", words.get("steps", "10..12"))
    ranks = re.fullmatch(r"\d+(,\d+)*", words.get("ranks", "0"))
    if not steps or not ranks:
        raise ValueError("it names steps and ranks by number")
    first, last = int(steps[1]), int(steps[2] or steps[1])
    if not 1 <= first <= last:
        raise ValueError("steps count from 1, the first before the last")
    if last - first >= MOST_STEPS:
        raise ValueError(f"at most {MOST_STEPS} steps fit into a trace")
    return ProfileRequest(first, last, tuple(map(int, ranks[0].split(","))))


class StepProfiler:
    """Told before and after every step of a rank; nothing happens but a comparison unless it is to be profiled."""

    def __init__(self, folder: Path, rank: int, text: str = "") -> None:
        self.folder, self.rank = folder, rank
        self.wanted = parse_request(text) if text else None
        self.profiler: Any = None
        self.annotation: Any = None
        self.looked = time.monotonic()
        self.answered = 0.0  # time of the last request that was taken up
        self.overhead = 0.0

    def before(self, step: int) -> None:
        """Begin a step's window, or nothing."""
        if self.wanted is None and time.monotonic() - self.looked > LOOK_SECONDS:
            self.wanted = self._asked(step)
        wanted = self.wanted
        if wanted is None or self.rank not in wanted.ranks or not wanted.first <= step <= wanted.last:
            return
        import torch

        if self.profiler is None:
            began = time.perf_counter()
            self.profiler = _started(torch)
            self.overhead += time.perf_counter() - began
        self.annotation = torch.profiler.record_function(f"ProfilerStep#{step}")
        self.annotation.__enter__()

    def after(self, step: int) -> None:
        if self.annotation is not None:
            self.annotation.__exit__(None, None, None)
            self.annotation = None
        if self.profiler is not None and self.wanted is not None and step >= self.wanted.last:
            began = time.perf_counter()
            self._finish()
            self.overhead += time.perf_counter() - began

    def take_overhead(self) -> float:
        """Seconds that starting and writing took since this was asked: no part of any step."""
        spent, self.overhead = self.overhead, 0.0
        return spent

    def _finish(self) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.profiler.stop()
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        path = self.folder / FOLDER / f"rank-{self.rank:05d}.json.gz"
        aside = path.with_name(f".{path.name}")
        self.profiler.export_chrome_trace(str(aside))
        aside.rename(path)
        self.profiler = self.wanted = None

    def _asked(self, step: int) -> ProfileRequest | None:
        """What `trainwright profile RUN` asked a run for that is already under way; each rank reads it once."""
        self.looked = time.monotonic()
        path = self.folder / ASKED
        try:
            asked = json.loads(path.read_text())
            if asked["time"] <= self.answered:
                return None
            self.answered = float(asked["time"])
            return ProfileRequest(step, step + min(int(asked["steps"]), MOST_STEPS) - 1, tuple(asked["ranks"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _started(torch: Any) -> Any:
    """A running profiler. The first one initialises the GPU's tracing, which takes seconds: a short one goes before."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    with profile(activities=kinds, acc_events=True):
        pass
    profiler = profile(activities=kinds, acc_events=True)
    profiler.start()
    return profiler


def profile_script(script: str, arguments: list[str]) -> None:
    """Run another script with its optimizer's steps counted."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)
    profiler = StepProfiler(Path(os.environ.get("TRAINWRIGHT_RUN", ".")), rank, os.environ.get(VARIABLE, EXAMPLE))
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1
        profiler.after(steps)
        profiler.before(steps + 1)

    register_optimizer_step_post_hook(count)
    profiler.before(1)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    if profiler.profiler is not None:
        print(f"the script ended after step {steps}, before the last step to profile", file=sys.stderr)


if __name__ == "__main__":
    profile_script(sys.argv[1], sys.argv[2:])
