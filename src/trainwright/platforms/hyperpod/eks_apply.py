"""HyperPod on EKS: the cluster of EKS with its charts first, HyperPod's own among them, then the HyperPod cluster whose
nodes join; and all of it away again, the nodes before the control plane."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainwright.aws.cloudformation import Stack
from trainwright.home import home
from trainwright.platforms.apply.stack_steps import StackDown
from trainwright.platforms.apply.status import Machine
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.base import NodeStatus, QueueStatus
from trainwright.platforms.eks.apply.build import EksBuild
from trainwright.platforms.eks.apply.programs import TAIL, Programs, Running, require
from trainwright.platforms.eks.apply.remove import CONTROL_PLANES, EksRemoval
from trainwright.platforms.eks.apply.status import EksStatus
from trainwright.platforms.hyperpod.apply import KEY, ROLE, HyperPodStatus, WithHyperPod, hyperpod_stacks

FIRST = "kubernetes"  # the step that empties Kubernetes


class HyperPodEksBuild(WithHyperPod, EksBuild):
    """One plan of HyperPod on EKS on its way to AWS."""

    def require(self) -> None:
        super().require()
        require(self.programs, ["git"], "HyperPod's chart is in a repository of AWS")

    def steps(self, stop_nodes: bool = False) -> list[Step]:
        steps = [*EksBuild.steps(self, stop_nodes), self.scripts_step()]
        return [*steps, self.cluster_step(tuple(step.key for step in steps))]

    def chart_steps(self, chart: Mapping[str, Any], after: str) -> list[Step]:
        if "git" not in chart:
            return super().chart_steps(chart, after)
        folder = home() / "charts" / f"{chart['name']}-{chart['version']}"
        fetched = ChartFetched(
            f"fetch-{chart['name']}", f"chart {chart['name']} of {chart['git']}", (after,), programs=self.programs,
            chart=chart, folder=folder,
        )  # fmt: skip
        local = {**chart, "chart": str(folder / chart["chart"])}
        return [fetched, *super().chart_steps(local, fetched.key)]


@dataclass
class ChartFetched(Step):
    """A chart that is in no index: its repository at a tag, with the charts that it depends on."""

    programs: Programs = field(kw_only=True)
    chart: Mapping[str, Any] = field(kw_only=True)
    folder: Path = field(kw_only=True)
    _running: Running | None = None
    _cloned: bool = False

    def advance(self) -> bool:
        if self.folder.is_dir():
            self.now("ready")
            return True
        if self._running is None:
            self._running = self.programs.start(self._words())
            self.now("creating", "git clone" if not self._cloned else "charts that it depends on")
        status = self._running.poll()
        if status is None:
            return False
        if status:
            raise BuildFailed(
                f"chart {self.chart['name']} could not be fetched: {self._running.errors().strip()[-TAIL:]}",
                fix="remove the cause, then run the same command again: it goes on from here",
            )
        self._running = None
        if self._cloned:
            self._new.rename(self.folder)
        self._cloned = True
        return False

    @property
    def _new(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.new")

    def _words(self) -> list[str]:
        if self._cloned:
            return ["helm", "dependency", "update", str(self._new / self.chart["chart"])]
        shutil.rmtree(self._new, ignore_errors=True)  # of a run that was ended
        self._new.parent.mkdir(parents=True, exist_ok=True)
        tag, source = str(self.chart["version"]), str(self.chart["git"])
        return ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, source, str(self._new)]


class HyperPodEksRemoval(EksRemoval):
    """One cluster of HyperPod on EKS on its way out."""

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return {**hyperpod_stacks(self.name, stacks), **super().own_stacks(stacks)}

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        steps = super().own_steps(existing)
        before = tuple(step.key for step in steps if step.key == FIRST)
        nodes = [self._hyperpod(KEY, existing[KEY], before)] if KEY in existing else []
        for step in steps:
            if nodes and step.key in CONTROL_PLANES:
                step.needs = (*step.needs, KEY)  # a control plane with nodes of HyperPod on it cannot go
        role = [self._hyperpod(ROLE, existing[ROLE], tuple(step.key for step in nodes))] if ROLE in existing else []
        return [*steps, *nodes, *role]

    def _hyperpod(self, key: str, stack: Stack, needs: tuple[str, ...]) -> StackDown:
        return StackDown(key, f"stack {stack.name}", needs, api=self.stacks, name=stack.name)


class HyperPodEksStatus(EksStatus):
    """The small nodes as EC2 sees them, those that train as SageMaker does."""

    platform = "hyperpod-eks"

    @cached_property
    def _hyperpod(self) -> HyperPodStatus:
        return HyperPodStatus(self.account, self.name)

    def own(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        return {**super().own(stacks), **hyperpod_stacks(self.name, stacks)}

    def machines(self) -> list[Machine]:
        return [*super().machines(), *self._hyperpod.machines()]

    def queue_of(self, machine: Machine) -> str:
        return str(machine["Group"]) if "Group" in machine else super().queue_of(machine)

    def queues(self, own: Mapping[str, Stack], nodes: Sequence[NodeStatus]) -> tuple[QueueStatus, ...]:
        return (*super().queues(own, nodes), *self._hyperpod.queues(own, nodes))

    def problems(self, own: Mapping[str, Stack]) -> tuple[str, ...]:
        return (*super().problems(own), *self._hyperpod.problems(own))
