"""Stop requests: SIGTERM, SIGUSR1, SIGINT, SIGHUP, a closed output, or a spot interruption notice. Every rank saves and
stops after the same step."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import torch
import torch.distributed as dist

from trainwright.train.data.credentials import fetch, imds, imds_token

REQUEUE = 75  # EX_TEMPFAIL: the work was saved, start the same command again
INTERRUPTED = 130  # saved after Ctrl-C
BROKEN_PIPE = 141  # saved after the reader of the output went away
CLOSED_OUTPUT = "closed output"
POLL_SECONDS = 5.0
SAVING = b"\nsaving after this step; press Ctrl-C again to exit without saving\n"
STOPPING = (
    b"\nstopping after this step; nothing is saved (--checkpoint-every never); press Ctrl-C again to exit at once\n"
)


class StopRequest:
    """Whether this process was asked to stop, and why. `saves`: whether the run saves before it stops."""

    def __init__(self, saves: bool = True) -> None:
        self.reason = ""
        self.saves = saves

    def __call__(self, reason: str) -> None:
        self.reason = self.reason or reason

    @property
    def status(self) -> int:
        """The exit status after saving: a scheduler restarts the command, but not one that a person has stopped."""
        return {"SIGINT": INTERRUPTED, CLOSED_OUTPUT: BROKEN_PIPE}.get(self.reason, REQUEUE)

    @contextlib.contextmanager
    def listening(self, spot: bool) -> Iterator[None]:
        """Handle the signals while the loop runs, then restore the previous handlers."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and background jobs have it
                    before[number] = signal.signal(number, self._handle)
        ended = threading.Event()
        if spot:
            threading.Thread(target=self._watch_spot, args=(ended,), daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            if self.reason:  # the second Ctrl-C does not wait for the step
                raise KeyboardInterrupt
            with contextlib.suppress(OSError):
                os.write(2, SAVING if self.saves else STOPPING)
        self(signal.Signals(number).name)

    def _watch_spot(self, ended: threading.Event) -> None:
        while not ended.wait(POLL_SECONDS):
            if spot_notice():
                self("spot interruption notice")
                return


def spot_notice() -> bool:
    """Whether this spot instance is about to be interrupted; the metadata service answers 404 until then."""
    try:
        fetch(f"{imds()}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": imds_token()})
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
    return True


class Vote:
    """Agreement of all ranks on stopping and saving, one step late so that no rank waits for it.

    A signal reaches ranks at different times, and clocks differ. Each step every rank starts an all-reduce of its
    requests; the sum is read at the next step, when it has arrived, and is the same on every rank."""

    def __init__(self, size: int) -> None:
        self.group = dist.new_group(backend="gloo") if size > 1 else None
        self.cast = torch.zeros(2)
        self.work: dist.Work | None = None

    def __call__(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Submit this rank's requests; returns what any rank requested one step ago (at once with one rank)."""
        if self.group is None:
            return stop, save
        agreed = (False, False)
        if self.work is not None:
            self.work.wait()
            agreed = (bool(self.cast[0] > 0), bool(self.cast[1] > 0))
        self.cast = torch.tensor([float(stop), float(save)])
        self.work = dist.all_reduce(self.cast, group=self.group, async_op=True)
        return agreed

    def close(self) -> None:
        """Finish the last all-reduce, so that no rank exits while another waits for it."""
        if self.work is not None:
            self.work.wait()
