"""The live views of a running job, for real: the page updates by itself in a browser, and watching costs little."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import chromium, needs_chromium, opened, serious_faults
from run_folders import HOSTILE, metrics_line, write_lines, write_run

from trainwright.report.watch.web import WatchServer

pytestmark = pytest.mark.slow
SECONDS = 12.0
MOST_CORE = 0.05


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run of this machine whose process lives until the test ends."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    name = f"live-{HOSTILE}".replace("/", "-")
    path = write_run(tmp_path / "runs", name, scheduler="process", platform="local", cluster="", job_id=name, steps=900)
    (path / "last_seen.json").unlink()
    write_lines(path / "metrics.jsonl", [metrics_line(step, 0.5) for step in range(1, 101)])
    job = subprocess.Popen(["sleep", "600"])
    started = Path(f"/proc/{job.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (path / "pid").write_text(f"{job.pid} {started}")
    yield path
    job.kill()
    job.wait()


@needs_chromium
def test_the_page_updates_by_itself(running: Path) -> None:
    server = WatchServer(pause=0.2)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        with chromium() as browser:
            for size, scheme in (("desktop", "light"), ("phone", "dark")):
                with opened(browser, server.address, size, scheme) as page:
                    page.wait_for_selector("#loss canvas")
                    step = len((running / "metrics.jsonl").read_text().splitlines()) + 1
                    with (running / "metrics.jsonl").open("a") as out:
                        out.write(json.dumps(metrics_line(step, 0.5)) + "\n")
                    page.wait_for_selector(f"#facts dd:text-is('{step} of 900')")
                    page.focus("#runs button")
                    page.keyboard.press("Enter")
                    assert page.inner_text("#status") == "live"
                    assert page.evaluate("window.broken") is None
                    assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
                    assert serious_faults(page) == []
                    with page.expect_navigation():
                        page.click("#report")
                    page.wait_for_selector("html[data-drawn]")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("arguments", [[], ["--plain"]], ids=["app", "lines"])
def test_watching_takes_less_than_a_twentieth_of_a_core(running: Path, arguments: list[str]) -> None:
    head, tail = pty.openpty()
    command = [sys.executable, "-m", "trainwright", "watch", "last", *arguments]
    watch = subprocess.Popen(
        command, stdin=tail, stdout=tail, stderr=tail, env={**os.environ, "TERM": "xterm-256color"}
    )
    os.close(tail)
    reader = threading.Thread(target=_drain, args=(head,), daemon=True)
    reader.start()
    try:
        _until_idle(watch.pid)
        before, began = _used(watch.pid), time.monotonic()
        while time.monotonic() - began < SECONDS:
            with (running / "metrics.jsonl").open("a") as out:
                out.write(json.dumps(metrics_line(200, 0.5)) + "\n")
            time.sleep(1.0)
        share = (_used(watch.pid) - before) / (time.monotonic() - began)
    finally:
        watch.kill()
        watch.wait()
    assert share < MOST_CORE


def _drain(head: int) -> None:
    try:
        while os.read(head, 65536):
            pass
    except OSError:
        os.close(head)


def _used(pid: int) -> float:
    """Seconds of processor time, of the process and of what it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _until_idle(pid: int) -> None:
    """Until its start is over: a second in which it needs little."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        before = _used(pid)
        time.sleep(1.0)
        if before > 0.3 and _used(pid) - before < 0.2:
            return
