"""The boot script of a monitored cluster: the exporter on every node; Prometheus, Alertmanager and Grafana with their
rules and dashboards on the head node."""

from __future__ import annotations

import base64
import bz2
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import trainwright
from trainwright.jobs.run_folder import run_root
from trainwright.platforms.monitoring.alertmanager import alertmanager_config
from trainwright.platforms.monitoring.dashboards import dashboard_files
from trainwright.platforms.monitoring.prometheus import MANAGED, PORT, from_files, prometheus_config, target
from trainwright.platforms.monitoring.rules import rule_files
from trainwright.shell_templates import ScriptText
from trainwright.spec.model import Monitoring, Spec

PACKAGE = Path(trainwright.__file__).parent
NODE_CODE = ("__init__.py", "errors.py", "exporters", "health")
TARGETS = "/var/lib/trainwright/nodes.json"
WRAP = 120


def monitoring_values(spec: Spec, pins: dict[str, Any]) -> dict[str, Any]:
    """What the template of the script is filled in with."""
    assert spec.monitoring is not None
    return {
        "code": ScriptText(payload()),
        "configuration": ScriptText(archive(head_files(spec))),
        "runs": run_root(spec),
        "port": PORT,
        "retention": ScriptText(f"{spec.monitoring.retention_days}d"),
        "as_root": _with_credentials(spec.monitoring),
        "grafana": pins["grafana"],
    }


def _with_credentials(monitoring: Monitoring) -> list[str]:
    """The services that sign requests to AWS: only root reads the head node's credentials."""
    managed = MANAGED.match(monitoring.remote_write or "")
    return ["prometheus-alertmanager"] * bool(monitoring.alerts.sns) + ["prometheus"] * bool(managed)


def payload() -> str:
    """The exporter and the node checks: they run with the system's own Python."""
    files: dict[str, bytes] = {}
    for name in NODE_CODE:
        paths = [PACKAGE / name] if name.endswith(".py") else sorted((PACKAGE / name).rglob("*"))
        kept = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
        files |= {f"trainwright/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in kept}
    return archive(files)


def head_files(spec: Spec) -> dict[str, bytes]:
    """Configuration of the head node, by its path below /."""
    import yaml

    assert spec.monitoring is not None
    discovery = from_files(TARGETS)
    rules, remote = "/etc/prometheus/trainwright/*.yaml", spec.monitoring.remote_write
    prometheus = prometheus_config(spec.name, discovery, "127.0.0.1:9093", rules=rules, remote_write=remote)
    own = {"static_configs": [target(f"127.0.0.1:{PORT}", "head")]}
    prometheus["scrape_configs"][0].update(own)
    texts = {
        "etc/prometheus/prometheus.yml": yaml.safe_dump(prometheus, sort_keys=False),
        "etc/prometheus/alertmanager.yml": yaml.safe_dump(alertmanager_config(spec.monitoring.alerts), sort_keys=False),
        "etc/grafana/provisioning/datasources/trainwright.yaml": json.dumps(_sources(), indent=1) + "\n",
        "etc/grafana/provisioning/dashboards/trainwright.yaml": json.dumps(_providers(), indent=1) + "\n",
    }
    texts |= {f"etc/prometheus/trainwright/{name}": text for name, text in rule_files().items()}
    texts |= {f"var/lib/trainwright/dashboards/{name}": text for name, text in dashboard_files().items()}
    return {name: text.encode() for name, text in texts.items()}


def _sources() -> dict[str, Any]:
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": "http://127.0.0.1:9090"}
    return {"apiVersion": 1, "datasources": [{**source, "isDefault": True}]}


def _providers() -> dict[str, Any]:
    options = {"path": "/var/lib/trainwright/dashboards"}
    return {"apiVersion": 1, "providers": [{"name": "trainwright", "type": "file", "options": options}]}


def archive(files: dict[str, bytes]) -> str:
    """A tar file, compressed, in base64; the same files give the same text."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    # Unlike gzip, bzip2 has one implementation: every machine plans the same text.
    text = base64.b64encode(bz2.compress(packed.getvalue())).decode()
    return "\n".join(text[at : at + WRAP] for at in range(0, len(text), WRAP))
