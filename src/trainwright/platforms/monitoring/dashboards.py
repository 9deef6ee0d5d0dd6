"""Grafana dashboards from `data/dashboards.toml`: cluster, job, node, network, storage, cost. A panel is a title, a
unit and its queries; the rest of Grafana's JSON follows from that."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 12, 8  # two panels per row of Grafana's 24 columns
VARIABLES = {
    "node": "label_values(trainwright_host_load1, node)",
    "run": "label_values(trainwright_run_step, run)",
    "job": "label_values(trainwright_slurm_job_running_seconds, slurm_job)",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: (legend, query) pairs. `needs`: hardware without which a query has no answer."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[str, ...] = ()


@cache
def dashboards() -> tuple[Dashboard, ...]:
    path = Path(__file__).parent / "data" / "dashboards.toml"
    return tuple(_dashboard(row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["dashboard"])


def _dashboard(row: dict[str, Any]) -> Dashboard:
    panels = tuple(
        Panel(**{**panel, "queries": tuple((legend, query) for legend, query in panel["queries"])})
        for panel in row["panel"]
    )
    return Dashboard(row["name"], row["title"], panels, tuple(row.get("variables", ())))


def dashboard_files() -> dict[str, str]:
    """File name -> JSON that Grafana takes, by provisioning or by import."""
    return {f"{item.name}.json": json.dumps(grafana(item), indent=1) + "\n" for item in dashboards()}


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": f"trainwright-{dashboard.name}",
        "title": f"Trainwright: {dashboard.title}",
        "tags": ["trainwright"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *[_variable(name) for name in dashboard.variables]]},
        "links": [{"type": "dashboards", "title": "Trainwright", "tags": ["trainwright"], "asDropdown": True}],
        "panels": [_panel(item, number) for number, item in enumerate(dashboard.panels)],
    }


def _variable(name: str) -> dict[str, Any]:
    choice = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": VARIABLES[name],
        "refresh": 2,
        "sort": 3,
        **choice,
    }


def _panel(item: Panel, number: int) -> dict[str, Any]:
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "type": item.kind,
        "title": item.title,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": item.unit, "noValue": f"needs {item.needs}" if item.needs else "no data"}},
        "targets": [
            {"refId": chr(65 + index), "expr": query, "legendFormat": legend or "__auto", "datasource": SOURCE}
            for index, (legend, query) in enumerate(item.queries)
        ],
    }
