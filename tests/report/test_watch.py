"""The live view: lines where it is piped, an app with keys, a page behind a token; and it notices a slow run."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from run_folders import BEGAN, HOSTILE, PREDICTION, metrics_line, write_lines, write_run

from trainwright.cli.watch import command
from trainwright.report.watch.snapshot import Watcher, gpu_use
from trainwright.report.watch.web import WatchServer
from trainwright.report.watch.words import spark
from trainwright.runs import reach, store
from trainwright.runs.store import Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def finished(home: Path) -> Path:
    path = write_run(home / "runs", "done-1", scheduler="process", platform="local", cluster="", ranks=2, steps=40)
    write_lines(path / "metrics.jsonl", [metrics_line(step, 0.5) for step in range(1, 41)])
    write_lines(path / "events.jsonl", [{"time": BEGAN, "event": "done", "step": 40}])
    return path


def slow_foreign_run(home: Path) -> Path:
    """Another trainer's run, which logs steps, each slower than predicted."""
    path = write_run(home / "runs", "foreign-1", scheduler="process", platform="local", cluster="", ranks=1)
    (path / "logs").mkdir()
    row = {"step_s": 2.0, "tokens_per_s": 500.0, "loss": 1.0, "total": 80}
    write_lines(path / "logs/rank-0.log", [{"step": step, **row} for step in range(1, 81)])
    speed = {"tokens_per_s": 1000.0, "tokens_per_s_per_gpu": 1000.0, "low": 800.0, "high": 1200.0}
    facts = {**PREDICTION, **speed, "gpus": 1, "step_time_s": 1.0}
    (path / "prediction.json").write_text(json.dumps(facts))
    return path


def test_lines_and_json_where_it_is_piped(finished: Path) -> None:
    plain = CliRunner().invoke(command, ["done-1"])
    assert (plain.exit_code, plain.output.split()[:4]) == (0, ["done-1", "completed", "step", "40/40"])
    facts = json.loads(CliRunner().invoke(command, ["done-1", "--json"]).output)
    assert (facts["run"]["step"], facts["run"]["state"]) == (40, "completed")


def test_the_gpus_of_this_machine_are_shown(finished: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "GPU use" not in CliRunner().invoke(command, ["done-1"]).output or gpu_use() is not None
    program = home / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '90\\n70\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert "GPU use 80%" in CliRunner().invoke(command, ["done-1"]).output
    program.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    assert gpu_use() is None


def test_a_run_of_another_trainer_that_falls_behind_is_reported_once(home: Path) -> None:
    path = slow_foreign_run(home)
    for _ in range(2):
        output = CliRunner().invoke(command, ["foreign-1"]).output
        assert "slower than predicted (slow step)" in output
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["source"], event["cause"]) for event in events] == [("behind", "watch", "slow step")]
    from trainwright.report.run_report.collect import collect

    speed = next(verdict for verdict in collect("foreign-1").verdicts if verdict.what == "speed")
    assert speed.status == "fail"
    assert "slow step" in speed.why


def test_a_spark_line_fits_its_width() -> None:
    assert spark([1, 2, None, 3], 10) == "▁▅█"
    assert len(spark(list(range(1000)), 40)) == 40
    assert spark([None], 5) == ""
    assert spark([2.0, 2.0], 5) == "▁▁"


@pytest.fixture
def live(home: Path) -> Iterator[Run]:
    """A real job of this machine that logs a step and then waits."""
    from trainwright.runs import submission
    from trainwright.runs.request import SubmitRequest, order_for

    script = home / "steps.py"
    script.write_text('import time\nprint(\'{"step": 1, "total": 9, "loss": 2.5}\', flush=True)\ntime.sleep(600)\n')
    order = order_for(SubmitRequest(script=str(script), scheduler="process"))
    run = submission.submit(order, submission.plan(order))
    yield run
    if not reach.run_state(run).over:
        reach.cancel(run)


def test_the_app_shows_a_run_its_log_and_cancels_it_only_after_a_question(live: Run) -> None:
    from trainwright.report.watch.app import WatchApp

    async def use() -> None:
        app = WatchApp(Watcher(), pause=0.2)
        async with app.run_test(size=(110, 40)) as pilot:

            async def until(text: str) -> None:
                end = time.monotonic() + 30
                while text not in screen(app):
                    assert time.monotonic() < end, f"{text!r} is not in\n{screen(app)}"
                    await pilot.pause(0.1)

            await until("1/9")
            assert live.name in screen(app)
            await pilot.press("l")
            await until("[rank-0] {")
            await pilot.press("c")
            await until("End the job of")
            await pilot.press("n")
            await pilot.pause()
            assert not reach.run_state(live).over
            await pilot.press("c")
            await until("End the job of")
            await pilot.press("y")
            await until("cancelled")

    asyncio.run(use())
    assert reach.run_state(live).state == "cancelled"


def screen(app: object) -> str:
    import html
    import re

    text = html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", "", app.export_screenshot(), flags=re.DOTALL))  # type: ignore[attr-defined]
    return text.replace("\xa0", " ")


@pytest.fixture
def server(home: Path) -> Iterator[WatchServer]:
    running = WatchServer(pause=0.05)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def answer(server: WatchServer, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*urlsplit(server.address).netloc.split(":"), timeout=20)  # type: ignore[arg-type]
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def test_the_page_is_for_who_has_its_address_and_read_only(server: WatchServer, finished: Path) -> None:
    own = f"/{server.token}/"
    assert answer(server, own).status == 200
    assert answer(server, own, Host="evil.example:80").status == 404
    for path in ("/", "/x/", f"/{server.token}x/", f"{own}../../etc/passwd", f"{own}report/..%2F..%2Fetc%2Fpasswd"):
        assert answer(server, path).status == 404, path
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert answer(server, own, method).status == 501
    assert server.server_address[0] == "127.0.0.1"
    report = answer(server, f"{own}report/done-1")
    assert (report.status, "Predicted beside measured" in report.read().decode()) == (200, True)


def test_the_page_gets_each_change_once(server: WatchServer, finished: Path) -> None:
    stream = answer(server, f"/{server.token}/events?run=done-1")
    assert stream.headers["Content-Type"] == "text/event-stream"
    first = json.loads(stream.readline().decode().removeprefix("data: "))
    assert (first["run"]["name"], first["run"]["step"]) == ("done-1", 40)
    stream.readline()
    with (finished / "metrics.jsonl").open("a") as out:
        out.write(json.dumps(metrics_line(41, 0.5)) + "\n")
    second = json.loads(stream.readline().decode().removeprefix("data: "))
    assert second["run"]["step"] == 41
    stream.close()


def test_a_run_with_a_hostile_name_is_only_text(home: Path) -> None:
    path = write_run(home / "runs", "x", scheduler="process", platform="local", cluster="")
    facts = json.loads((path / "run.json").read_text()) | {"cluster": HOSTILE}
    (path / "run.json").write_text(json.dumps(facts))
    snapshot = Watcher().poll()
    assert snapshot.run is not None
    assert store.find("last").cluster == HOSTILE
    from trainwright.report.watch.app import run_text

    assert "\\[" in run_text(snapshot.run, 100) or "[b]x[/b]" in run_text(snapshot.run, 100)


def test_a_loss_that_is_not_finite_is_reported_and_breaks_no_view(server: WatchServer, home: Path) -> None:
    path = write_run(home / "runs", "nan-1", scheduler="process", platform="local", cluster="", ranks=1)
    (path / "logs").mkdir()
    rows = [f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in ((1, "4.0"), (2, "NaN"), (3, "NaN"))]
    (path / "logs/rank-0.log").write_text("".join(rows))
    (path / "events.jsonl").write_text('{"time": NaN, "event": "note"}\n{"time": 1e400, "event": "note"}\n')
    assert "loss not finite" in CliRunner().invoke(command, ["nan-1"]).output
    text = CliRunner().invoke(command, ["nan-1", "--json"]).output
    assert "NaN" not in text.replace("nan-1", "")
    assert json.loads(text)["run"]["losses"] == [4.0, None, None]
    stream = answer(server, f"/{server.token}/events?run=nan-1")
    assert json.loads(stream.readline().decode().removeprefix("data: "))["run"]["loss"] is None
    stream.close()


@pytest.mark.parametrize("path", [b"*", b"/\xe9/", b"http://[/"])
def test_a_request_without_the_token_leaves_no_traceback(
    server: WatchServer, path: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    host = urlsplit(server.address).netloc
    with socket.create_connection(server.server_address[:2], timeout=20) as client:
        client.sendall(b"GET " + path + f" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert client.makefile("rb").readline().split()[1:2] == [b"404"]
    assert capfd.readouterr().err == ""


def test_a_page_that_is_closed_early_leaves_no_traceback(
    server: WatchServer, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        server.handle_error(socket.socket(), ("127.0.0.1", 1))
    assert capsys.readouterr().err == ""


def test_what_a_job_writes_cannot_control_the_terminal(home: Path) -> None:
    path = write_run(home / "runs", "esc-1", scheduler="process", platform="local", cluster="", ranks=1)
    event = {"time": BEGAN, "event": "behind", "cause": "\x1b]0;title\x07", "why": "a\nb\x9b31m"}
    write_lines(path / "events.jsonl", [event])
    lines = CliRunner().invoke(command, ["esc-1"]).output.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("option", ["--json", "--once", "--plain"])
def test_the_page_and_lines_exclude_each_other(home: Path, option: str) -> None:
    refused = CliRunner().invoke(command, ["--web", option], catch_exceptions=False)
    assert (refused.exit_code, option in refused.output) == (2, True)


def test_a_lost_run_is_no_success(finished: Path) -> None:
    status = {"id": "7", "name": "done-1", "state": "lost", "scheduler": "process"}
    (finished / "last_seen.json").write_text(json.dumps({"time": BEGAN, "status": status}))
    assert CliRunner().invoke(command, ["done-1"]).exit_code == 1
