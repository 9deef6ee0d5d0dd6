"""A rank's command as torchrun takes it, for schedulers whose pods or containers start one torchrun per node."""

from __future__ import annotations

from trainwright.schedulers.base import Launch

PORT = 29400  # pods and multi-node containers have an address of their own, so one port serves every job


def log_options(launch: Launch) -> list[str]:
    """Every rank's output goes to the container's log, marked with its rank, and also into the run folder."""
    return ["--tee=3", f"--log-dir={launch.folder}/logs"]


def under_torchrun(command: tuple[str, ...]) -> list[str]:
    """`python -m mod …` and `python script.py …` without the interpreter; anything else runs without Python."""
    words = list(command)
    if words and words[0].rpartition("/")[2].startswith("python"):
        return words[1:]
    return ["--no-python", *words]
