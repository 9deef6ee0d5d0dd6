"""What every test has: the tools of the virtual environment on the path, however pytest was started."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# A cluster that a test starts ends with this process, also where CI kills it.
os.environ["TRAINWRIGHT_ENDS_WITH"] = str(os.getpid())
# A suite in the background of a shell without job control inherits an ignored SIGINT, and with it what it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now to tests/golden, and prices to examples",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests, which have a time limit of their own, start first: else one worker ends with them alone."""
    items.sort(key=lambda item: -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0))


def pytest_collection_finish() -> None:
    """What the collection imported stays to the end. A full garbage collection, which each run of the trainer does,
    walks all of it unless it is left out."""
    gc.collect()
    gc.freeze()
