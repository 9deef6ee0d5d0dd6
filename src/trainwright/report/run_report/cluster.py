"""The cluster of a run: its picture, its price, the versions on it, and what `check` says about its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright import __version__
from trainwright.errors import UserError
from trainwright.report.run_report.folder import json_file
from trainwright.report.run_report.model import Table
from trainwright.report.run_report.redact import text_without_keys

if TYPE_CHECKING:
    from trainwright.platforms.plan.tree import ClusterPlan


def findings_of(spec: Path) -> tuple[dict[str, str | int], ...]:
    if not spec.exists():
        return ()
    from trainwright.check.engine import check

    try:
        rows = [finding.row() for finding in check([str(spec)]).findings]
    except UserError as error:
        rows = [{"code": "", "level": "error", "line": 1, "message": error.what, "fix": error.fix}]
    shown = ("code", "level", "line", "message", "fix")
    return tuple(
        {key: text_without_keys(value) if isinstance(value := row[key], str) else value for key in shown}
        for row in rows
    )


@lru_cache(maxsize=8)
def plan_of(spec: Path) -> ClusterPlan | None:
    """None where the platform is not planned, or the spec no longer has what it needs."""
    from trainwright.platforms.plan.tree import make_plan
    from trainwright.spec.load import load

    try:
        return make_plan(load(spec)) if spec.exists() else None
    except UserError:
        return None


def picture_of(spec: Path) -> str:
    from trainwright.report.picture import picture

    plan = plan_of(spec)
    return picture(plan) if plan is not None else ""


def price_table(folder: Path) -> Table | None:
    """Every part of the cluster and its price per hour; None where nothing of it has one."""
    plan = plan_of(folder / "spec.yaml")
    if plan is None or not plan.bill.lines:
        return None
    rows = tuple(
        (
            line.part,
            line.what,
            str(line.most) if line.least == line.most else f"{line.least} to {line.most}",
            f"${line.usd_hour_most:,.2f}"
            if line.usd_hour_each is not None
            else "by use"
            if line.by_use
            else "no price",
            line.date,
        )
        for line in plan.bill.lines
    )
    return Table(("part", "what", "count", "per hour, all up", "price of"), rows)


def usd_hour(folder: Path, prediction: Mapping[str, Any]) -> float | None:
    """Dollars per hour of the nodes that the job uses: what the prediction was priced at, else the list price."""
    from trainwright.catalog.prices import price

    bill = prediction.get("cost")
    if bill:
        return float(bill["usd_hour"])
    plan = plan_of(folder / "spec.yaml")
    values = json_file(folder / "resolved.json").get("values", {})
    instance, nodes = (str(values.get(name, {}).get("value", "")) for name in ("instance", "nodes"))
    if plan is None or not nodes.isdecimal() or instance in ("", "none"):
        return None
    listed = price(instance, plan.spec.region or "us-east-1")
    return listed.usd_hour * int(nodes) if listed else None


def versions(folder: Path, events: Sequence[Mapping[str, Any]]) -> Table:
    """What ran, and where that is known from."""
    rows = [("trainwright", __version__, "wrote this report")]
    starts = [event for event in events if event.get("event") == "start" and isinstance(event.get("versions"), dict)]
    if starts:
        rows += [(str(name), str(value), "on rank 0") for name, value in starts[-1]["versions"].items()]
    git = json_file(folder / "git.json")
    if git.get("commit"):
        changed = ", with changes (git.diff)" if git.get("changed") else ""
        rows.append(("commit", str(git["commit"])[:12], f"of the code that was submitted{changed}"))
    for path in sorted((folder / "health").glob("*.json"))[:1]:
        versions = json_file(path).get("versions") or {}
        rows += [(str(name), str(value), f"on node {path.stem}") for name, value in versions.items() if value]
    return Table(("what", "version", "where"), tuple(rows))
