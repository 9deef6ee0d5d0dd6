"""The profile of a run: asks a live run for one, collects the traces from the cluster, and sums them up."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.files import write_whole
from trainwright.predict.nsight import nsight_trace
from trainwright.predict.trace import Profile, profile_of, read_trace
from trainwright.predict.trace_terms import SUMMARY, record
from trainwright.runs.reach import run_state, shell_of
from trainwright.runs.store import Run
from trainwright.train.profile import ASKED, FOLDER

ASK_SECONDS = 900.0
TRACES = (".json", ".json.gz", ".sqlite")


@dataclass(frozen=True)
class Collected:
    """The traces of a run on this machine, and what was left where it is, with the reason."""

    traces: tuple[Path, ...]
    left: tuple[str, ...] = ()


def collect(run: Run, size: float) -> Collected:
    """Fetch the traces and reports of a run; those over `size` bytes stay on the cluster."""
    shell, source, target = shell_of(run), f"{run.where}/{FOLDER}", run.folder / FOLDER
    names = [name for name in shell.listing(source) if name.endswith((*TRACES, ".nsys-rep")) and name != SUMMARY]
    left = []
    for name in names:
        length = shell.size(f"{source}/{name}")
        if length > size:
            left.append(f"{source}/{name} ({length / 1e9:.1f} GB)")
        elif shell.remote or run.remote:
            target.mkdir(parents=True, exist_ok=True)
            if not (target / name).exists() or (target / name).stat().st_size != length:
                (target / name).write_bytes(shell.read(f"{source}/{name}"))
    paths = [target / name for name in names if (target / name).is_file() and (target / name).stat().st_size <= size]
    exported = [_exported(path) if path.suffix == ".nsys-rep" else path for path in paths]
    left += [f"{path} (no nsys here to read it)" for path, made in zip(paths, exported, strict=True) if made is None]
    return Collected(tuple(dict.fromkeys(path for path in exported if path is not None)), tuple(left))


def _exported(report: Path) -> Path | None:
    """Nsight's own report as a database, which its program makes."""
    made = report.with_suffix(".sqlite")
    if made.exists():
        return made
    if shutil.which("nsys") is None:
        return None
    command = ["nsys", "export", "--type=sqlite", f"--output={made}", str(report)]
    done = subprocess.run(command, capture_output=True, text=True)
    return made if done.returncode == 0 and made.exists() else None


def ranks_of(run: Run, text: str) -> tuple[int, ...]:
    """`0,8` as ranks of this run."""
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise UserError(f"{text!r} names no ranks", where="--ranks", fix="--ranks 0,8")
    ranks = tuple(map(int, words))
    if max(ranks) >= run.ranks:
        raise UserError(f"no rank {max(ranks)}: this run has {run.ranks}", where="--ranks", fix="ranks count from 0")
    return ranks


def ask(run: Run, steps: int, ranks: tuple[int, ...], say: Callable[[str], None]) -> None:
    """Ask a run of our trainer that is under way for a profile of its next steps, and wait until it is there."""
    shell = shell_of(run)
    words = {"time": time.time(), "steps": steps, "ranks": list(ranks)}
    before = set(shell.listing(f"{run.where}/{FOLDER}"))
    shell.output(["tee", f"{run.where}/{ASKED}"], json.dumps(words) + "\n")
    say(f"asked {run.name} for {steps} steps of rank {', '.join(map(str, ranks))}")
    wanted = {f"rank-{rank:05d}.json.gz" for rank in ranks}
    deadline = time.monotonic() + ASK_SECONDS
    while not wanted <= set(shell.listing(f"{run.where}/{FOLDER}")) - before:
        state = run_state(run)
        if state.over:
            raise UserError(f"the run ended ({state.state}) before it was profiled", where=run.name)
        if time.monotonic() > deadline:
            raise UserError(
                f"no profile after {ASK_SECONDS / 60:.0f} minutes", where=run.name,
                fix="only our own trainer takes such a request; others: `submit --profile`",
            )  # fmt: skip
        time.sleep(1.0)


def summarise(traces: tuple[Path, ...], folder: Path | None = None) -> dict[str, Any]:
    """The profiles of all traces beside the prediction of the run, kept in the run's folder."""
    profiles = [_profile(path) for path in traces]
    prediction = _prediction(folder) if folder else None
    facts = record(profiles, prediction)
    if folder and (folder / FOLDER).is_dir():
        write_whole(folder / FOLDER / SUMMARY, json.dumps(facts, indent=1) + "\n")
    return facts


def _profile(path: Path) -> Profile:
    trace = nsight_trace(path) if path.suffix == ".sqlite" else read_trace(path)
    return profile_of(trace, str(path))


def _prediction(folder: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads((folder / "prediction.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and "parts" in facts else None
