"""Where this machine keeps clusters and runs: one folder, so that every verb finds what another one made."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$TRAINWRIGHT_HOME`, or `~/.local/state/trainwright`."""
    chosen = os.environ.get("TRAINWRIGHT_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "trainwright"
