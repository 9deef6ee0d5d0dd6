"""Monitoring of a local cluster, for real: an exporter on the head and on every node that is up, and a Prometheus and
an Alertmanager of this machine, on loopback ports."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trainwright.files import write_whole
from trainwright.home import home
from trainwright.platforms.local import config, daemons, ports, state
from trainwright.platforms.local.cluster import LocalNode
from trainwright.platforms.local.state import Record
from trainwright.platforms.monitoring.alertmanager import alertmanager_config
from trainwright.platforms.monitoring.dashboards import dashboard_files
from trainwright.platforms.monitoring.prometheus import PORT, from_files, prometheus_config, target
from trainwright.platforms.monitoring.rules import rule_files

if TYPE_CHECKING:
    from trainwright.spec.model import Monitoring

INTERVAL = "5s"  # a local cluster is small, and its user waits
EXPORTER = (sys.executable, "-m", "trainwright.exporters", "--every", "5")
PROGRAMS = {"prometheus": ("prometheus",), "alertmanager": ("prometheus-alertmanager", "alertmanager")}
INSTALL = "apt-get install --no-install-recommends prometheus prometheus-alertmanager"


@dataclass(frozen=True)
class Ports:
    """Loopback ports of this machine. `exporter` is the head's, or the relay's where nodes have own networks."""

    prometheus: int
    alertmanager: int
    exporter: int


def ensure(record: Record, say: Callable[[str], None] = lambda words: None) -> None:
    """Start what should run and does not, and stop what should not: also after a repair or a changed spec."""
    if record.cluster.monitoring is None:
        state.kill(record, lambda role: role in PROGRAMS or role == "relay" or role.startswith("exporter-"))
        return
    from trainwright.spec.model import Monitoring

    alive = set(state.processes(record).values())
    nodes = _nodes_up(record, alive)
    chosen = _ports(record)
    _write(record, chosen, Monitoring.model_validate(record.cluster.monitoring), nodes)
    _start_exporters(record, chosen, nodes, alive)
    _start_servers(record, chosen, alive, say)


def address(record: Record) -> str:
    """Where Prometheus answers."""
    return f"http://127.0.0.1:{_ports(record).prometheus}"


def alertmanager_address(record: Record) -> str:
    return f"http://127.0.0.1:{_ports(record).alertmanager}"


def _nodes_up(record: Record, alive: set[str]) -> list[LocalNode]:
    """The nodes with a process, and static ones in any case: one that is down is worth an alert."""
    up = [node for node in record.cluster.nodes if not node.elastic or daemons.node_role(node) in alive]
    return up if record.namespaces else []  # nodes that share the machine would all say the same


def _ports(record: Record) -> Ports:
    path = record.folder / "run/monitoring.json"
    if path.exists():
        return Ports(**json.loads(path.read_text()))
    with ports.reserved(3) as free:
        chosen = Ports(*free)
    write_whole(path, json.dumps(asdict(chosen)) + "\n")
    return chosen


def _write(record: Record, chosen: Ports, settings: Monitoring, nodes: Sequence[LocalNode]) -> None:
    import yaml

    folder = record.folder / "etc/monitoring"
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    (folder / "dashboards").mkdir(exist_ok=True)
    discovery = from_files("targets.json", refresh=INTERVAL)
    if record.namespaces:
        discovery["proxy_url"] = f"http://127.0.0.1:{chosen.exporter}"
    alertmanager = f"127.0.0.1:{chosen.alertmanager}"
    remote = settings.remote_write
    prometheus = prometheus_config(record.cluster.name, discovery, alertmanager, INTERVAL, remote_write=remote)
    head = f"{config.HEAD_ADDRESS}:{PORT}" if record.namespaces else f"127.0.0.1:{chosen.exporter}"
    targets = [target(head, "head"), *(target(f"{n.address}:{PORT}", n.name, queue=n.queue.name) for n in nodes)]
    files = {
        "prometheus.yml": yaml.safe_dump(prometheus, sort_keys=False),
        "alertmanager.yml": yaml.safe_dump(alertmanager_config(settings.alerts, group_wait="1s"), sort_keys=False),
        "targets.json": json.dumps(targets, indent=1) + "\n",
        **{f"rules/{name}": text for name, text in rule_files().items()},
        **{f"dashboards/{name}": text for name, text in dashboard_files().items()},
    }
    for name, text in files.items():
        write_whole(folder / name, text)


def _start_exporters(record: Record, chosen: Ports, nodes: Sequence[LocalNode], alive: set[str]) -> None:
    head = [*EXPORTER, "--slurm", "--runs", str(home() / "runs")]
    if "exporter-head" not in alive and record.namespaces:
        daemons.launch(record, "exporter-head", [*daemons.enter(record), *head, "--address", config.HEAD_ADDRESS])
    elif "exporter-head" not in alive:
        daemons.launch(record, "exporter-head", [*head, "--address", "127.0.0.1", "--port", str(chosen.exporter)])
    if record.namespaces and "relay" not in alive:
        _start_relay(record, chosen.exporter)
    for node in nodes:
        pid = state.pid_of(record, daemons.node_role(node)) if f"exporter-{node.name}" not in alive else None
        if pid is not None:
            command = [*_enter_node(pid), *EXPORTER, "--address", node.address]
            daemons.launch(record, f"exporter-{node.name}", command)


def _enter_node(pid: int) -> list[str]:
    """What stands before a command that runs on a node, and ends with it: the node's process table is its own."""
    spaces = [f"--{kind}=/proc/{pid}/ns/{name}" for kind, name in (("net", "net"), ("uts", "uts"), ("mount", "mnt"))]
    return ["nsenter", *spaces, f"--pid=/proc/{pid}/ns/pid_for_children", "--"]


def _start_relay(record: Record, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        descriptor = listening.fileno()
        command = [*daemons.enter(record), sys.executable, "-m", "trainwright.platforms.local.relay", str(descriptor)]
        daemons.launch(record, "relay", command, keep=(descriptor,))


def _start_servers(record: Record, chosen: Ports, alive: set[str], say: Callable[[str], None]) -> None:
    folder = record.folder / "etc/monitoring"
    programs = {role: next(filter(None, map(_which, names)), None) for role, names in PROGRAMS.items()}
    missing = [role for role, program in programs.items() if program is None]
    if missing:
        say(f"metrics are exported, but nothing gathers them: {' and '.join(missing)} not found; {INSTALL}")
        return
    options = {
        "prometheus": [
            f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={record.folder}/prometheus",
            f"--web.listen-address=127.0.0.1:{chosen.prometheus}", "--log.level=warn",
        ],
        "alertmanager": [
            f"--config.file={folder}/alertmanager.yml", f"--storage.path={record.folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{chosen.alertmanager}", "--cluster.listen-address=", "--log.level=warn",
        ],
    }  # fmt: skip
    for role, words in options.items():
        if role not in alive:
            daemons.launch(record, role, [programs[role] or "", *words])
    say(
        f"metrics: Prometheus on http://127.0.0.1:{chosen.prometheus}, alerts on http://127.0.0.1:{chosen.alertmanager}"
    )


def _which(name: str) -> str | None:
    return shutil.which(name, path=state.PATH)
