"""What every scheduler takes and gives: a launch goes in, a script, a job's identity and states come out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Literal, Protocol

from trainwright.catalog.capabilities import schedulers
from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.schedulers.shell import Shell
from trainwright.shell_templates import in_control

POD_CODE = "/trainwright/code"  # where a container finds the code of the run
SAVED = 75  # the exit status that says: everything is saved, start me again

State = Literal[
    "pending", "running", "completing", "completed", "failed", "cancelled", "timeout", "node-failed", "lost", "unknown"
]
ENDED: frozenset[State] = frozenset({"completed", "failed", "cancelled", "timeout", "node-failed", "lost"})


@dataclass(frozen=True)
class SecretEnv:
    """A variable whose value is a secret of the user's: taken from a variable of this shell, or from a file."""

    name: str
    env: str = ""
    file: str = ""

    @property
    def source(self) -> str:
        return f"the variable {self.env} of the shell that submits" if self.env else f"the file {self.file}"


@dataclass(frozen=True)
class Launch:
    """A job made concrete: what each rank runs, on how much of the cluster, and under which conditions."""

    name: str
    command: tuple[str, ...]
    folder: Path  # the run folder, as the nodes see it
    nodes: int = 1
    processes: int = 1  # per node
    cpus: int = 1  # per process; 0: all of the node's, shared out when the job starts
    gpus: int = 0  # per node
    queue: str = ""
    environment: tuple[EnvVar, ...] = ()
    launcher: Literal["srun", "torchrun", "plain"] = "srun"  # plain: the command starts once per node
    array: str = ""
    time: int | None = None  # seconds
    grace: int = 120  # seconds before the time limit at which the ranks are signalled to save
    saves_on_term: bool = False  # another trainer that writes a checkpoint when it gets SIGTERM, and ends
    requeue: bool = True
    retries: int = 3  # how often a crash after progress starts the job again
    exclusive: bool = False
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    after: str = ""  # id of a job that has to succeed first
    container: str = ""
    mounts: tuple[str, ...] = ()
    venv: str = ""
    secrets: tuple[tuple[str, str], ...] = ()  # variable, and where the cluster keeps its value
    secret_env: tuple[SecretEnv, ...] = ()  # variables whose values are read where the user keeps them
    kind: str = ""  # of a Kubernetes job
    code: str = ""  # the folder of a pod that the archive of the code is unpacked into
    code_store: str = ""  # the place in S3 that the archive goes through; empty: the cluster keeps it
    files: tuple[tuple[str, str], ...] = ()  # path on the nodes and text of configuration files
    archive: bytes = field(default=b"", repr=False)  # that archive, where the code does not travel by itself
    archive_url: str = field(default="", repr=False)  # where it is fetched from; whoever knows it may read the code
    archive_region: str = ""  # of its bucket
    health: bool = False

    @property
    def ranks(self) -> int:
        return self.nodes * self.processes


@dataclass(frozen=True)
class Script:
    """What a scheduler is handed: text a person can read, under the file name it has in the run folder."""

    filename: str
    text: str


@dataclass(frozen=True)
class JobIdentity:
    """One job for good. Schedulers number jobs from 1 again after a fresh start, so an id alone names nobody."""

    id: str  # the scheduler's own number or name
    name: str = ""  # the job's name at the scheduler, which is the run's: no two runs share one
    start: str = ""  # which start of the cluster, or which object of the API, where the scheduler says so
    submitted: float | None = None


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment, in the same words whatever scheduler it runs on."""

    id: str
    name: str
    state: State
    scheduler: str
    cluster: str = ""
    queue: str = ""
    nodes: int = 0
    node_list: str = ""
    reason: str = ""
    exit_code: int | None = None
    submitted: str = ""
    started: str = ""
    ended: str = ""
    restarts: int = 0

    @property
    def over(self) -> bool:
        return self.state in ENDED


class Scheduler(Protocol):
    """One way of running jobs."""

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str: ...

    @property
    def shell(self) -> Shell:
        """Where its commands run and run folders are read."""
        ...

    @property
    def ships(self) -> bool:
        """Whether the run folder made here reaches the nodes. Where images run, it does not."""
        ...

    @property
    def python(self) -> str:
        """The interpreter on the nodes."""
        ...

    @property
    def interface(self) -> str:
        """The network interface the nodes of a local cluster use; empty elsewhere."""
        ...

    @property
    def at(self) -> Mapping[str, str]:
        """What finds this scheduler again from `run.json`: namespace, region, start of the cluster."""
        ...

    def render(self, launch: Launch) -> Script: ...

    def submit(self, launch: Launch, script: Script) -> JobIdentity: ...

    def jobs(self) -> list[JobStatus]: ...

    def state(self, job: JobIdentity) -> JobStatus: ...

    def cancel(self, job: JobIdentity) -> None: ...

    def explain_pending(self, job: JobIdentity) -> str: ...

    def logs(
        self, job: JobIdentity, folder: str, seen: dict[str, str], rank: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """The new lines of all ranks or of one, each with its source (`rank-3`, a pod). `seen` keeps the position."""
        ...


class RunsImages:
    """What the schedulers have in common whose jobs run in container images: the image holds the software."""

    python = "python3"
    interface = ""
    ships = False


def assert_honoured(launch: Launch, scheduler: str) -> None:
    """`check` reports what a scheduler cannot honour (SPC001), so no launch that states it gets here."""
    refuse_unsafe(launch)
    stated = [path[-1] for path in schedulers()[scheduler].cannot if _was_set(launch, path[-1])]
    assert not stated, f"the {scheduler} scheduler cannot honour {', '.join(stated)} of job {launch.name}"


def refuse_unsafe(launch: Launch) -> None:
    """What would leave its line of a script: a control character in a name or an option, or a name of a variable that
    no shell takes. Values of variables and words of the command are quoted instead, whatever they hold."""
    words = {one.name: getattr(launch, one.name) for one in fields(launch) if one.name != "command"}
    texts = {name: value for name, value in words.items() if isinstance(value, str)}
    texts |= {"folder": str(launch.folder), **{f"mounts[{n}]": mount for n, mount in enumerate(launch.mounts)}}
    texts |= {f"the secret of {secret.name}": secret.file for secret in launch.secret_env}
    for name, text in texts.items():
        if any(in_control(letter) for letter in text):
            where = f"job {launch.name!r}"
            raise UserError(f"{name} holds a control character: {text!r}", where=where, fix="remove it")
    if any("\0" in text for text in (*launch.command, *(line.value for line in launch.environment))):
        raise UserError("a NUL character can be no argument and no variable", where=f"job {launch.name!r}")
    for variable in (*(line.name for line in launch.environment), *_secret_names(launch)):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise UserError(
                f"{variable!r} is not a name of an environment variable",
                where=f"job {launch.name!r}: env",
                fix="use letters, digits and underscores, a letter first",
            )


def _secret_names(launch: Launch) -> list[str]:
    return [*(name for name, _ in launch.secrets), *(secret.name for secret in launch.secret_env)]


def _was_set(launch: Launch, name: str) -> bool:
    stated = next(one for one in fields(launch) if one.name == name)
    return stated.default is not MISSING and getattr(launch, name) != stated.default
