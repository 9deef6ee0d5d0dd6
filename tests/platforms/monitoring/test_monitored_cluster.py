"""A local cluster under load, watched for real: its Prometheus scrapes the exporters, every dashboard query is executed
and an alert reaches a webhook through Alertmanager."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.platforms.local import daemons, life, monitoring, state
from trainwright.platforms.monitoring.dashboards import dashboards

SPEC = """
name: watched
platform: local
queues:
  - {name: train, nodes: 2, cpus: 1}
  - {name: gpus, nodes: 1, cpus: 1, gpus: 4}
monitoring: {alerts: {webhook: "WEBHOOK"}}
jobs:
  - name: pretrain
    recipe: llama3.2-1b-debug
    nodes: 2
    parallel: {shard: 2}
    batch: {sequences: 4}
    sequence: 64
    steps: 5000
    checkpoint: {steps: 5, keep: 1}
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Webhook(BaseHTTPRequestHandler):
    received: list[dict[str, Any]]
    arrived: threading.Event

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.arrived.set()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def webhook() -> Iterator[tuple[str, type[Webhook]]]:
    handler = type("Mine", (Webhook,), {"received": [], "arrived": threading.Event()})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alerts", handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def watched(webhook: tuple[str, type[Webhook]], monkeypatch: pytest.MonkeyPatch) -> Iterator[state.Record]:
    if daemons.missing_programs() or shutil.which("prometheus") is None or os.geteuid() != 0:
        pytest.skip("needs root, Slurm and Prometheus")
    folder = Path(tempfile.mkdtemp(prefix="tw"))
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder))
    (folder / "spec.yaml").write_text(SPEC.replace("WEBHOOK", webhook[0]))
    call("up", str(folder / "spec.yaml"))
    yield state.require("watched")
    life.down("watched", force=True)
    shutil.rmtree(folder)


def call(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def query(record: state.Record, expression: str) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{monitoring.address(record)}/api/v1/query?{words}") as answer:
            result = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # Prometheus is starting: it has no answer yet
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except OSError:  # it has not opened its port yet
        return []
    return list(result["data"]["result"])


def wait_for(what: str, ready: Callable[[], Any], seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := ready()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return answer


def shown(expression: str) -> str:
    """A query as Grafana sends it with every variable at All."""
    return re.sub(r"\$__range", "1h", re.sub(r"\$(node|run|job)\b", ".*", expression))


def test_a_cluster_under_load_is_scraped_shown_and_alerted_about(
    watched: state.Record, webhook: tuple[str, type[Webhook]]
) -> None:
    spec = str(watched.folder.parents[1] / "spec.yaml")
    run = json.loads(call("submit", spec, "--json"))
    call("submit", spec)  # waits, since all nodes are taken
    keep_prediction(spec, Path(run["folder"]) if "folder" in run else watched.folder.parents[1] / "runs" / run["name"])
    wait_for("every exporter is scraped", lambda: len(query(watched, 'up{job="trainwright"} == 1')) == 4)
    wait_for("the trainer's metrics", lambda: query(watched, "trainwright_run_loss"))
    wait_for("rates", lambda: len(query(watched, "node:cpu_busy:ratio")) == 4)
    assert {row["metric"]["node"] for row in query(watched, "trainwright_slurm_job_node")} == {"train-1", "train-2"}
    assert query(watched, "trainwright_exporter_scrape_seconds") != []
    (idle,) = query(watched, 'trainwright_slurm_gpus{partition="gpus", use="idle"}')  # stand-ins, which Slurm counts
    assert idle["value"][1] == "4"

    fire_at_once(watched)
    daemons.run_on_head(watched, ["scontrol", "update", "node=train-2", "state=drain", "reason=bad card 3"])
    wait_for("every query has an answer", lambda: not unanswered(watched), 60)
    assert unanswered(watched) == []
    check_message(*webhook)


def unanswered(record: state.Record) -> list[tuple[str, str]]:
    """The queries without an answer that need no special hardware."""
    panels = [(board, panel) for board in dashboards() for panel in board.panels]
    return [
        (f"{board.name}: {panel.title}", expression)
        for board, panel in panels
        for _, expression in panel.queries
        if not query(record, shown(expression)) and not panel.needs
    ]


def keep_prediction(spec: str, run: Path) -> None:
    """`submit` predicts for instance types only; this machine's own prediction comes from `predict`."""
    text = json.loads(call("predict", spec, "--json"))
    (run / "prediction.json").write_text(json.dumps(text))


def fire_at_once(record: state.Record) -> None:
    """The same rules without their minutes of patience."""
    path = record.folder / "etc/monitoring/rules/alerts.yaml"
    path.write_text(re.sub(r"for: \d+m", "for: 1s", path.read_text()))
    os.kill(state.pid_of(record, "prometheus") or 0, signal.SIGHUP)


def check_message(address: str, handler: type[Webhook]) -> None:
    def drained() -> list[dict[str, Any]]:
        alerts = [alert for message in handler.received for alert in message["alerts"]]
        return [alert for alert in alerts if alert["labels"]["alertname"] == "NodeDrained"]

    wait_for("the webhook hears of the drained node", drained, 60)
    alert = drained()[0]
    assert alert["annotations"]["summary"] == "train-2 is draining: bad card 3"
    assert alert["labels"] | {"cluster": "watched", "node": "train-2", "runbook": "node-drained"} == alert["labels"]


def test_metrics_end_with_the_cluster(watched: state.Record) -> None:
    """`down` leaves nothing behind, `up` again replaces an exporter that was killed."""
    wait_for("exporters are scraped", lambda: len(query(watched, 'up{job="trainwright"} == 1')) == 4)
    state.kill(watched, "exporter-train-1".__eq__)
    call("up", str(watched.folder.parents[1] / "spec.yaml"))
    assert state.pid_of(watched, "exporter-train-1") is not None
    assert "prometheus" in set(state.processes(watched).values())
    assert asdict(watched.cluster)["monitoring"] is not None
    life.down("watched")
    assert state.processes(watched) == {}
    call("up", str(watched.folder.parents[1] / "spec.yaml"))
