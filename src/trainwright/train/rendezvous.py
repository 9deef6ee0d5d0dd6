"""The start of a job with several ranks: all of them join a key-value store before the process group is made, so that a
rank which does not start is named within minutes, and nobody waits as long as for a step."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from trainwright.errors import UserError

EXIT_HUNG = 70  # exit status after a watchdog fired
GRACE = 10.0  # seconds


def wait_for_ranks(rank: int, size: int, seconds: float) -> Any:
    """The store for the process group, once every rank has reached it. A rank that is missing is named."""
    import torch.distributed as dist
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    store: Any = None
    try:
        store = _open_store(rank, size, limit)
        store.set(f"trainwright/rank{rank}", "here")
        if store.add("trainwright/joined", 1) == size:
            store.set("trainwright/complete", "yes")
        store.wait(["trainwright/complete"], limit)
        return PrefixStore("trainwright", store)
    except (dist.DistError, RuntimeError, ValueError) as error:
        missing = _missing_ranks(store, size) if store else []
        names = ", ".join(str(r) for r in missing[:8]) + (" ..." if len(missing) > 8 else "")
        what = f"rank{'s' if len(missing) > 1 else ''} {names} did not start" if missing else "rank 0 cannot be reached"
        raise StartupFailed(
            f"{what} within {seconds:g} s",
            where=address,
            fix="see the log of that rank; --startup-timeout waits longer",
        ) from error


def _open_store(rank: int, size: int, limit: timedelta) -> Any:
    """The key-value store of the job: torchrun's own, or one that rank 0 serves. Torch's rendezvous would wait for all
    ranks there, without a word about which are missing."""
    from torch.distributed import TCPStore, rendezvous  # type: ignore[attr-defined]

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return next(rendezvous("env://", rank, size, timeout=limit))[0]
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(f"{missing[0]} is not set", fix="start the ranks with torchrun or srun, which set it")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, size, rank == 0, timeout=limit, wait_for_workers=False)


def _missing_ranks(store: Any, size: int) -> list[int]:
    try:
        return [rank for rank in range(size) if not store.check([f"trainwright/rank{rank}"])]
    except RuntimeError:
        return []


class StartupFailed(UserError):
    """Not all ranks came up; shown like any UserError, with the exit status of a hang."""

    status = EXIT_HUNG


@contextmanager
def startup_watchdog(seconds: float) -> Iterator[None]:
    """Exit if the process group is not up in time: a rank may die between joining the store and its first connection,
    and torch would wait for it as long as for a step."""

    limit = 2 * seconds + GRACE

    def fire() -> None:
        rank = os.environ.get("RANK", "0")
        sys.stderr.write(f"rank {rank}: the process group was not up within {limit:g} s: another rank has died\n")
        sys.stderr.flush()
        os._exit(EXIT_HUNG)

    timer = threading.Timer(limit, fire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
