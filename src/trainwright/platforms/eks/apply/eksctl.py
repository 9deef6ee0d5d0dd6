"""The cluster through eksctl. It works for a quarter of an hour; CloudFormation tells how far it is, and a later run
goes on from its stacks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.aws.cloudformation import BROKEN, Stack, StackApi
from trainwright.platforms.apply.stack_steps import StackStep, failed
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.eks.apply.programs import TAIL, Programs, Running

PLUGINS = ["--install-nvidia-plugin=false", "--install-neuron-plugin=false"]  # the plan's charts have newer ones


def stack_name(cluster: str, group: str = "") -> str:
    """What eksctl calls its stacks."""
    return f"eksctl-{cluster}-nodegroup-{group}" if group else f"eksctl-{cluster}-cluster"


def _file(config: str) -> str:
    """The configuration as a file that outlives this process: eksctl may still read it."""
    handle, path = tempfile.mkstemp(prefix="trainwright-eksctl-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(config)
    return path


@dataclass
class EksctlStack(StackStep):
    """The control plane, or one node group, as a stack that eksctl makes."""

    programs: Programs = field(kw_only=True)
    cluster: str = field(kw_only=True)
    config: Callable[[], str] = field(kw_only=True)
    group: str = field(kw_only=True, default="")
    _running: Running | None = None
    _path: str = ""
    _begun: bool = False

    @property
    def stack_name(self) -> str:
        return stack_name(self.cluster, self.group)

    def act(self, stack: Stack | None) -> bool:
        if self._running is not None and not self._ended(self._running, stack):
            return False
        if stack is None:
            return self._start()
        if stack.busy:
            self._begun |= stack.status == "CREATE_IN_PROGRESS"
            self.now("removing" if "DELETE" in stack.status else "creating", "eksctl began it")
            return False
        if stack.status in BROKEN:
            return self._restart(stack)
        self.now("ready")
        self.parts = {}
        return True

    def _start(self) -> bool:
        self._path = _file(self.config())
        words = ["eksctl", "create", "nodegroup" if self.group else "cluster", "-f", self._path, *PLUGINS]
        words += [f"--include={self.group}"] if self.group else ["--without-nodegroup", "--write-kubeconfig=false"]
        self._running = self.programs.start(words)
        self._begun = True
        self.now("creating", "eksctl: 5 to 15 minutes")
        return False

    def _ended(self, running: Running, stack: Stack | None) -> bool:
        """Whether eksctl is over. What it leaves undone on a stack that is made, the next steps do."""
        status = running.poll()
        if status is None:
            self.now("creating", "eksctl works")
            return False
        self._running = None
        Path(self._path).unlink(missing_ok=True)
        if status and stack is None:
            raise BuildFailed(f"eksctl ended with status {status}: {running.errors().strip()[-TAIL:]}")
        return True

    def _restart(self, stack: Stack) -> bool:
        if self._begun or self.state == "removing":
            raise failed(self.api, stack, stack.name)
        self.api.delete(stack.name)
        self.now("removing", "what an earlier attempt left")
        return False


@dataclass
class EksctlCommand(Step):
    """A short command of eksctl that leaves alone what is there."""

    programs: Programs = field(kw_only=True)
    noun: str = field(kw_only=True)
    config: Callable[[], str] = field(kw_only=True)
    wanted: Callable[[], bool] = field(kw_only=True)
    stacks: StackApi | None = field(kw_only=True, default=None)
    leftover: str = field(kw_only=True, default="")  # a stack of an earlier life that eksctl would stumble over
    _running: Running | None = None
    _path: str = ""

    def advance(self) -> bool:
        if self._running is None:
            if not self.wanted():
                self.now("ready")
                return True
            if not self._cleared():
                return False
            self._path = _file(self.config())
            self._running = self.programs.start(["eksctl", "create", self.noun, "-f", self._path])
            self.now("changing", f"eksctl create {self.noun}")
        status = self._running.poll()
        if status is None:
            return False
        Path(self._path).unlink(missing_ok=True)
        if status:
            raise BuildFailed(f"eksctl create {self.noun} failed: {self._running.errors().strip()[-TAIL:]}")
        self.now("ready")
        return True

    def _cleared(self) -> bool:
        """Whether nothing of an earlier life of the cluster is in the way."""
        stack = self.stacks.describe(self.leftover) if self.stacks is not None and self.leftover else None
        if stack is None or self.stacks is None:
            return True
        if not stack.busy:
            self.stacks.delete(stack.name)
        self.now("removing", "what an earlier cluster left")
        return False
