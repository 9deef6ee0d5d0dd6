"""The one model every rule looks at. A reader turns a file of any format into it and keeps the positions, so one rule
serves every format. A field is None when the file does not say it; a `Value` that is not `known` was said, but as a
placeholder or reference whose value the file does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainwright.check.clusters import (
    BootScript,
    Cluster,
    Database,
    Head,
    Interface,
    LaunchTemplate,
    Link,
    Policy,
    PortRule,
    Queue,
    SecurityGroup,
    SlurmRecord,
    Storage,
)
from trainwright.check.jobs import (
    Branch,
    Command,
    Container,
    EnvVar,
    Job,
    ModelDims,
    Pod,
    Refusal,
    ShellScript,
    Volume,
)
from trainwright.check.value import Value, known, stated
from trainwright.spec.source import WHOLE_FILE, Node, Span

if TYPE_CHECKING:  # pydantic comes with these; a foreign file is checked without it
    from trainwright.jobs.resolved import Resolution
    from trainwright.spec.load import LoadedSpec
    from trainwright.spec.model import Spec

T = TypeVar("T")

__all__ = [
    "BootScript",
    "Branch",
    "CheckedSpec",
    "Cluster",
    "Command",
    "Container",
    "Database",
    "EnvVar",
    "File",
    "Head",
    "Interface",
    "Job",
    "LaunchTemplate",
    "Link",
    "ModelDims",
    "Pin",
    "Pod",
    "Policy",
    "PortRule",
    "Queue",
    "Refusal",
    "SecurityGroup",
    "ShellScript",
    "SlurmRecord",
    "Storage",
    "Value",
    "Volume",
    "known",
    "stated",
]


@dataclass(slots=True)
class Pin:
    """A version of a piece of software that the file pins."""

    software: str  # as the catalog names it: efa | ofi_nccl | nccl | cuda | driver | libfabric | torch | kernel ...
    version: Value[str]


@dataclass(slots=True)
class CheckedSpec:
    """A spec of ours: as loaded, with its defaults filled in, and what became of its jobs."""

    loaded: LoadedSpec
    full: Spec
    jobs: list[Resolution]
    scheduler: str = ""  # that jobs are to run on, where it is not the platform's


@dataclass(slots=True)
class File:
    """One file, read: what it says about clusters and jobs, with every position."""

    path: str
    text: str
    format: str
    nodes: list[Node] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    scripts: list[ShellScript] = field(default_factory=list)
    security_groups: list[SecurityGroup] = field(default_factory=list)
    launch_templates: list[LaunchTemplate] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)  # those of no cluster (CloudFormation)
    policies: list[Policy] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    slurm: list[SlurmRecord] = field(default_factory=list)  # of slurm.conf, gres.conf and topology.conf
    specs: list[CheckedSpec] = field(default_factory=list)  # of a Trainwright spec: what was loaded and resolved
    siblings: dict[str, File] = field(default_factory=dict)  # files beside this one that belong to it, by format
    template: bool = False  # of Jinja or Helm: its expressions are placeholders
    targets: dict[str, str] = field(default_factory=dict)  # versions the user's configuration states, by software
    named: bool = False  # by the user: it matters to somebody, whatever uses it
    span: Span = WHOLE_FILE
    _derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def lines(self) -> list[str]:
        return self.derived(_lines_of)

    def derived(self, function: Callable[[File], T]) -> T:
        """What a function makes of the whole file, computed once, as `ShellScript.derived` does."""
        if function not in self._derived:
            self._derived[function] = function(self)
        return cast(T, self._derived[function])

    @property
    def queues(self) -> Iterator[tuple[Cluster, Queue]]:
        """Every queue of the file with its cluster."""
        for cluster in self.clusters:
            for queue in cluster.queues:
                yield cluster, queue

    @property
    def all_storages(self) -> Iterator[Storage]:
        """Every file system of the file, inside a cluster or not."""
        for cluster in self.clusters:
            yield from cluster.storages
        yield from self.storages

    @property
    def boot_scripts(self) -> Iterator[BootScript]:
        for cluster in self.clusters:
            if cluster.head is not None:
                yield from cluster.head.scripts
            for queue in cluster.queues:
                yield from queue.scripts

    @property
    def all_env(self) -> Iterator[EnvVar]:
        """Every environment variable that a job or script sets."""
        for job in self.jobs:
            yield from job.env
        for script in self.scripts:
            yield from script.env

    def scalars(self) -> Iterator[Node]:
        """Every plain value of a YAML or JSON file."""
        for root in self.nodes:
            for node in root.walk():
                if node.is_scalar:
                    yield node


def _lines_of(file: File) -> list[str]:
    return file.text.split("\n")
