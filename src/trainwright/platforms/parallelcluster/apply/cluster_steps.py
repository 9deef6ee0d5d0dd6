"""The cluster itself, through `pcluster`. Its CloudFormation stack has the cluster's name and tells how far it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from trainwright.aws.cloudformation import BROKEN, Stack, StackApi
from trainwright.aws.fleet import FleetApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account
from trainwright.catalog.versions import version_set
from trainwright.platforms.apply.stack_steps import StackStep, failed
from trainwright.platforms.apply.steps import BuildFailed, Step

CONFIG_FILE = "configs/cluster-config.yaml"  # where pcluster keeps the file it was given
STOPPING, STARTING = ("STOP_REQUESTED", "STOPPING"), ("START_REQUESTED", "STARTING")  # states of a compute fleet


class Tool(Protocol):
    """What of `pcluster` is used here."""

    def ready(self) -> None: ...

    def create(self, name: str, config: str) -> None: ...

    def update(self, name: str, config: str) -> None: ...

    def delete(self, name: str) -> None: ...

    def fleet(self, name: str, status: str) -> None: ...


def deployed_config(stack: Stack, buckets: BucketApi) -> str | None:
    """The cluster file that the stack was made from, as pcluster keeps it in its own bucket. A newer version may be
    there, of an update that was refused or ended before it began."""
    bucket, folder = stack.parameters.get("ResourcesS3Bucket"), stack.parameters.get("ArtifactS3RootDirectory")
    if not bucket or not folder:
        return None
    return buckets.read(bucket, f"{folder}/{CONFIG_FILE}", stack.parameters.get("ConfigVersion", ""))


@dataclass
class ToolUp(Step):
    """Install `pcluster` before the first resource is made, where there is no cluster yet: without it, what the stacks
    make would be paid for and of no use."""

    api: StackApi = field(kw_only=True)
    tool: Tool = field(kw_only=True)
    name: str = field(kw_only=True)

    def advance(self) -> bool:
        stack = self.api.describe(self.name)
        if stack is None or not stack.usable:
            self.tool.ready()
        self.now("ready")
        return True


@dataclass
class ClusterUp(StackStep):
    """Create the cluster or update it. `config` is asked for when all stacks before it are there."""

    buckets: BucketApi = field(kw_only=True)
    fleet: FleetApi = field(kw_only=True)
    tool: Tool = field(kw_only=True)
    name: str = field(kw_only=True)
    config: Callable[[], str] = field(kw_only=True)
    stop_fleet: bool = field(kw_only=True, default=False)
    explain: Callable[[Stack], BuildFailed] = field(kw_only=True)
    _begun: bool = False
    _updated: bool = False

    @property
    def stack_name(self) -> str:
        return self.name

    def act(self, stack: Stack | None) -> bool:
        if stack is None:
            self.now("creating", "pcluster create-cluster: 10 to 20 minutes")
            self._create()
            return False
        if stack.busy:
            return self._wait(stack)
        if stack.status in BROKEN:
            return self._restart(stack)
        if self._updated and stack.status == "UPDATE_ROLLBACK_COMPLETE":
            raise self.explain(stack)
        if self._same(deployed_config(stack, self.buckets)):
            return self._started()
        return self._update()

    def _started(self) -> bool:
        """The nodes of a cluster that is as it should be run too. An update that needs them stopped leaves them so,
        and the run that began it may have been ended."""
        status = self.fleet.status(self.name)
        if status == "STOPPED":
            self.tool.fleet(self.name, "START_REQUESTED")
        if status in ("STOPPED", *STOPPING, *STARTING):
            self.now("starting", "the compute nodes")
            return False
        self.now("ready", "protected mode: nodes failed to start too often" if status == "PROTECTED" else "")
        self.parts = {}
        return True

    def _create(self) -> None:
        """Two people may run this at once; the one who comes second finds the other's stack."""
        try:
            self.tool.create(self.name, self.config())
        except BuildFailed:
            if self.api.describe(self.name) is None:
                raise
        self._begun = True

    def _wait(self, stack: Stack) -> bool:
        self._begun |= stack.status == "CREATE_IN_PROGRESS"
        words = {"CREATE_IN_PROGRESS": "creating", "DELETE_IN_PROGRESS": "removing", "UPDATE_IN_PROGRESS": "changing"}
        self.now(words.get(stack.status, "rolling back" if "ROLLBACK" in stack.status else "changing"))
        return False

    def _restart(self, stack: Stack) -> bool:
        if self._begun or self.state == "removing":
            raise self.explain(stack)
        _delete(self.tool, self.api, self.name)
        self.now("removing", "what an earlier attempt left")
        return False

    def _same(self, deployed: str | None) -> bool:
        return deployed is not None and yaml.safe_load(deployed) == yaml.safe_load(self.config())

    def _update(self) -> bool:
        status = self.fleet.status(self.name) if self.stop_fleet else ""
        if status not in ("STOPPED", ""):
            if status not in STOPPING:
                self.tool.fleet(self.name, "STOP_REQUESTED")
            self.now("stopping", "the compute nodes, for this change")
            return False
        self.tool.update(self.name, self.config())
        self._updated = True
        self.now("changing", "pcluster update-cluster")
        return False


@dataclass
class ClusterDown(Step):
    """Delete the cluster through pcluster, which also removes its own files from S3, and wait until it is gone."""

    api: StackApi = field(kw_only=True)
    tool: Tool = field(kw_only=True)
    name: str = field(kw_only=True)
    _deleted_here: bool = False

    def advance(self) -> bool:
        stack = self.api.describe(self.name)
        if stack is None:
            self.now("gone")
            return True
        if stack.status == "DELETE_IN_PROGRESS":
            self._deleted_here = True
            self.now("removing", "about 10 minutes")
            return False
        if stack.busy:
            self.now("waiting", f"until {stack.status} ends")
            return False
        if stack.status == "DELETE_FAILED" and self._deleted_here:
            raise failed(self.api, stack, self.name)
        _delete(self.tool, self.api, self.name)
        self._deleted_here = True
        self.now("removing", "about 10 minutes")
        return False


def pcluster_bucket(account: str, region: str) -> str:
    """The bucket in which pcluster keeps its files, one for each region of an account."""
    return f"parallelcluster-{hashlib.sha256((account + region).encode()).hexdigest()[:16]}-v1-do-not-delete"


@dataclass
class ArtifactsDown(Step):
    """Remove the files that a pcluster left in its bucket when it was ended between uploading and creating."""

    account: Account = field(kw_only=True)
    buckets: BucketApi = field(kw_only=True)
    name: str = field(kw_only=True)

    def advance(self) -> bool:
        bucket = pcluster_bucket(self.account.identity()[0], self.account.region)
        if self.buckets.exists(bucket):
            folder = f"parallelcluster/{version_set('default').parallelcluster}/clusters/"
            own = re.compile(re.escape(f"{folder}{self.name.lower()[:46]}-") + "[a-z0-9]{16}/")
            self.buckets.empty(bucket, f"{folder}{self.name.lower()[:46]}-", lambda key: own.match(key) is not None)
        self.now("gone")
        return True


def _delete(tool: Tool, api: StackApi, name: str) -> None:
    """Begin the deletion; one that somebody else began, or that is over already, is as good."""
    try:
        tool.delete(name)
    except BuildFailed:
        stack = api.describe(name)
        if stack is not None and stack.status != "DELETE_IN_PROGRESS":
            raise
