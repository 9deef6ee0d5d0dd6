"""The data of this room: what becomes of each part of a foreign file."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.jobs.environment import RENDEZVOUS
from trainwright.spec.words import SECRET_NAME

PROVIDED = RENDEZVOUS | {"NODE_RANK", "GROUP_RANK"}  # the job script sets them for each rank


@cache
def table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "data" / "slurm.toml").read_text(encoding="utf-8"))


def is_secret(name: str) -> bool:
    return SECRET_NAME.fullmatch(name) is not None
