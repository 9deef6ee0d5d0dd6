"""What runs on the cluster: charts by helm and objects by kubectl, each safe to do again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.aws.eks import EksApi
from trainwright.aws.node_interfaces import drop_forgotten
from trainwright.aws.session import Account
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.eks import kubeconfig
from trainwright.platforms.eks.apply.programs import TAIL, Programs, Running, answer

PENDING = {"pending-install": "uninstall", "pending-upgrade": "rollback", "pending-rollback": "rollback"}


@dataclass
class KubeconfigUp(Step):
    """Wait for the cluster's API and write the way to it."""

    api: EksApi = field(kw_only=True)
    cluster: str = field(kw_only=True)

    def advance(self) -> bool:
        cluster = self.api.cluster(self.cluster)
        if cluster is None or cluster.status in ("CREATING", "PENDING"):
            self.now("waiting", "for the control plane")
            return False
        if cluster.status not in ("ACTIVE", "UPDATING"):
            raise BuildFailed(f"EKS cluster {self.cluster} is {cluster.status}", fix="see it in the console of EKS")
        path = kubeconfig.keep(cluster, self.api.account.region)
        self.now("ready", f"kubeconfig: {path}")
        return True


@dataclass
class Leftovers(Step):
    """Delete the network interfaces that nodes of an earlier life of the cluster left: a `down` was ended half-way."""

    account: Account = field(kw_only=True)
    cluster: str = field(kw_only=True)

    def advance(self) -> bool:
        drop_forgotten(self.account, self.cluster)
        self.now("ready")
        return True


@dataclass
class ChartUp(Step):
    """Install a chart in its pinned version, or leave it as it is. A helm that was ended leaves a release that no later
    one may touch: it is taken back first."""

    programs: Programs = field(kw_only=True)
    chart: Mapping[str, Any] = field(kw_only=True)
    kubeconfig: Path = field(kw_only=True)
    _running: Running | None = None
    _repairs: bool = False

    def advance(self) -> bool:
        if self._running is not None:
            return self._wait(self._running)
        release = self._release()
        status = str(release.get("status", ""))
        if status in PENDING:
            self._start(["helm", PENDING[status], self.chart["name"], "--namespace", self.chart["namespace"], "--wait"])
            self._repairs = True
            self.now("changing", f"taking back a release that is {status}")
            return False
        if status == "deployed" and release.get("chart") == self._wanted() and self._values() == self.chart["values"]:
            self.now("ready")
            return True
        self._start(_install(self.chart), json.dumps(self.chart["values"]))
        self.now("changing" if release else "creating", f"{self.chart['version']}")
        return False

    def _wait(self, running: Running) -> bool:
        status = running.poll()
        if status is None:
            return False
        if status:
            raise BuildFailed(
                f"helm could not install {self.chart['name']}: {running.errors().strip()[-TAIL:]}",
                fix="remove the cause, then run the same command again: it goes on from here",
            )
        self._running, repaired, self._repairs = None, self._repairs, False
        if not repaired:
            self.now("ready")
        return not repaired

    def _start(self, words: Sequence[str], text: str = "") -> None:
        self._running = self.programs.start(words, text, {"KUBECONFIG": str(self.kubeconfig)})

    def _release(self) -> dict[str, Any]:
        words = ["helm", "list", "--namespace", self.chart["namespace"], "--all", "--output", "json"]
        rows = json.loads(answer(self.programs, words, self.kubeconfig) or "[]")
        return next((dict(row) for row in rows if row.get("name") == self.chart["name"]), {})

    def _values(self) -> Any:
        words = ["helm", "get", "values", self.chart["name"], "--namespace", self.chart["namespace"], "-o", "json"]
        return json.loads(answer(self.programs, words, self.kubeconfig) or "null") or {}

    def _wanted(self) -> str:
        own = f"{str(self.chart['chart']).rpartition('/')[2]}-{self.chart['version']}"
        return str(self.chart.get("release", own))


def _install(chart: Mapping[str, Any]) -> list[str]:
    words = ["helm", "upgrade", "--install", chart["name"], chart["chart"], "--version", chart["version"]]
    words += ["--repo", chart["repo"]] if chart.get("repo") else []
    where = ["--namespace", chart["namespace"], "--create-namespace"]
    return [*words, *where, "--values", "-", "--wait", "--timeout", "10m"]


def apply_words(source: str, how: str = "-f") -> list[str]:
    """kubectl's words for a file or its address, standard input (`-`), or a folder of kustomize (`-k`)."""
    return ["kubectl", "apply", "--server-side", "--force-conflicts", how, source]
