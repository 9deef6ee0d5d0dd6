"""What a training script may ask of the run it is in: folders, its place among the ranks, whether to stop, and one line
of progress per step. Nothing here is required; docs/run/your-script.md says what a script can do without it.

Standard library only, and no other module of this package: the file can be copied beside a script."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

SAVED = 75  # the exit status that says: everything is saved, start me again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # what arrives before a time limit, or when a node is taken away

_stop_reason = ""
_listening = False


class Place(NamedTuple):
    """Where this process stands among all of the job, and where they meet."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    master_addr: str
    master_port: int


def folder() -> Path:
    """The run folder: it is on storage that every node sees, and stays when the job ends."""
    return Path(os.environ.get("TRAINWRIGHT_RUN") or ".")


def checkpoint_folder() -> Path:
    """Where checkpoints of this run go. The same folder after each restart; it is made where it is not there."""
    path = Path(os.environ.get("TRAINWRIGHT_CHECKPOINTS") or folder() / "checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    return path


def place() -> Place:
    """This rank, from whatever started it: torchrun, srun or mpirun; alone it is rank 0 of 1."""
    return Place(
        _number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"),
        _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", otherwise=1),
        _number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE", otherwise=1),
        _number("GROUP_RANK", "NODE_RANK", "SLURM_NODEID"),
        os.environ.get("MASTER_ADDR", "127.0.0.1"),
        _number("MASTER_PORT", otherwise=29400),
    )


def attempt() -> int:
    """How often this job was started before: 0 the first time."""
    return _number("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "AWS_BATCH_JOB_ATTEMPT")


def listen() -> None:
    """Take the signals from here on: they no longer end the process, `should_stop()` reports them. Call it first."""
    global _listening
    if not _listening and threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _take)
        _listening = True


def should_stop() -> bool:
    """Whether to save and leave now. With torch.distributed running, all ranks get the same answer in the same step, so
    every rank has to call it once per step."""
    listen()
    return _agreed(bool(_stop_reason))


def stop_reason() -> str:
    """The signal that arrived at this rank, or an empty string."""
    return _stop_reason


def progress(step: int, loss: float | None = None, **numbers: float) -> None:
    """One line of JSON about a step, from rank 0: `--follow`, `runs`, `watch` and `report` read it, and a job that made
    progress is started again after a fault. Names that are understood: total, loss, tokens_per_s, samples_per_s,
    step_s, grad_norm, lr."""
    if place().rank != 0:
        return
    row: dict[str, Any] = {"step": step, "time": time.time()}
    if loss is not None:
        row["loss"] = float(loss)
    row.update({name: float(value) if name != "total" else int(value) for name, value in numbers.items()})
    line = json.dumps({name: _plain(value) for name, value in row.items()})
    if "TRAINWRIGHT_RUN" not in os.environ:
        print(line, flush=True)
        return
    with open(folder() / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write(line + "\n")


def exit_saved() -> NoReturn:
    """Leave with the status that says: saved, start me again."""
    sys.stdout.flush()
    sys.exit(SAVED)


def finish(step: int) -> None:
    """Say that the training reached its end: `result.json` in the run folder, from rank 0."""
    if place().rank == 0 and "TRAINWRIGHT_RUN" in os.environ:
        unfinished = folder() / "result.json.part"
        unfinished.write_text(json.dumps({"status": "done", "step": step}) + "\n", encoding="utf-8")
        unfinished.replace(folder() / "result.json")


def _take(number: int, frame: object) -> None:
    global _stop_reason
    _stop_reason = _stop_reason or signal.Signals(number).name


def _agreed(stop: bool) -> bool:
    """Any rank's wish is every rank's: one that stops alone leaves the others in a collective that never ends."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return stop
    torch = sys.modules["torch"]
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    vote = torch.tensor([int(stop)], device=device)
    distributed.all_reduce(vote)
    return bool(vote.item())


def _number(*names: str, otherwise: int = 0) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return otherwise


def _plain(value: Any) -> Any:
    """JSON has no number for a loss that is none."""
    return None if isinstance(value, float) and value - value != 0 else value
