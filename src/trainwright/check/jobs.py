"""What a file says about jobs: sizes, plans, environments, commands, scripts and pods, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from trainwright.check.clusters import Queue
from trainwright.check.value import Value
from trainwright.spec.source import Span

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A stretch of a script that may not run: of an if or a case, behind a test, or the body of a function."""

    opening: str  # the text that opens it
    outer: Branch | None
    function: str = ""  # its name


@dataclass(frozen=True, slots=True, eq=False)
class Subshell:
    """A shell that a script starts for some of its commands: `( … )`, a part of a pipe, `bash -c`, `… &`."""

    outer: Subshell | None


@dataclass(slots=True)
class EnvVar:
    """An environment variable that a job or image sets."""

    name: str
    value: Value[str]
    span: Span
    comment: str = ""  # the comment on or above the line: a reason or benchmark note silences ENV002
    prefix: bool = False  # given to one command (`NAME=value command`, `mpirun -x`), not to those after it
    applies: bool = True  # to all that follows: not `NAME=value command`, nor in a branch, a function or a subshell


@dataclass(slots=True)
class Command:
    """One command of a shell script, in words, with the position of each."""

    words: list[Value[str]]
    span: Span
    inside_srun: bool = False
    line_text: str = ""
    options: dict[str, Value[str]] = field(default_factory=dict)  # without dashes, hyphens as underscores
    batch_variables: frozenset[str] = frozenset()  # variables and $(…) that the batch script itself expands
    invoked: Value[str] | None = None  # the first word as it is written, with its path
    runner: Command | None = None  # the srun, mpirun or docker that starts it
    conditional: bool = False  # inside an if, a loop or a function
    branch: bool = False  # of an if or a case, or behind a test (`[ … ] && command`): may not run
    piped: bool = False  # its output goes to the next command
    background: bool = False  # `command &`
    subshell: Subshell | None = None  # that it runs in: its `cd` moves nothing else

    @property
    def program(self) -> str:
        return self.words[0].value if self.words else ""

    def option(self, *names: str) -> Value[str] | None:
        """The value of `--name value` or `--name=value`; an option without a value gives an empty string."""
        for index, word in enumerate(self.words):
            for name in names:
                if word.value == name:
                    following = self.words[index + 1] if index + 1 < len(self.words) else None
                    if following is None or following.value.startswith("--"):
                        return Value("", word.span, word.text)
                    return following
                if word.value.startswith(name + "="):
                    return Value(word.value[len(name) + 1 :], word.span, word.text)
        return None


@dataclass(slots=True)
class ModelDims:
    """The shape of a model as a job states it."""

    span: Span
    name: Value[str] | None = None
    hidden: Value[int] | None = None
    layers: Value[int] | None = None
    heads: Value[int] | None = None
    kv_heads: Value[int] | None = None
    ffn: Value[int] | None = None
    vocab: Value[int] | None = None
    tokenizer_vocab: Value[int] | None = None
    max_position: Value[int] | None = None
    experts: Value[int] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job of a spec cannot run, as the resolver found it, under the code of the rule that reports it."""

    code: str
    span: Span
    what: str
    fix: str


@dataclass(slots=True)
class Job:
    """A job, from an sbatch script, a Kubernetes manifest or a spec of ours."""

    span: Span
    scheduler: str  # slurm | kubernetes | batch | spec
    name: Value[str] | None = None
    platform: str = ""  # hyperpod where the file shows it
    instance: Value[str] | None = None
    nodes: Value[int] | None = None
    gpus_per_node: list[Value[int]] = field(default_factory=list)  # everywhere the file says it
    efa_per_node: list[Value[int]] = field(default_factory=list)
    processes_per_node: Value[int] | None = None
    tasks_per_node: Value[int] | None = None
    cpus_per_task: Value[int] | None = None
    workers: Value[int] | None = None  # data loader workers per rank
    exclusive: Value[bool] | None = None
    refusals: list[Refusal] = field(default_factory=list)  # of a job of ours
    directives: dict[str, Value[str]] = field(default_factory=dict)  # sbatch long options, without the dashes
    env: list[EnvVar] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    tp: Value[int] | None = None
    pp: Value[int] | None = None
    cp: Value[int] | None = None
    ep: Value[int] | None = None
    virtual_stages: Value[int] | None = None
    shard: Value[int] | None = None
    replicate: Value[int] | None = None
    global_batch: Value[int] | None = None  # sequences per step
    micro_batch: Value[int] | None = None
    sequence: Value[int] | None = None
    model: ModelDims | None = None
    warmup: Value[int] | None = None
    decay: Value[int] | None = None
    steps: Value[int] | None = None
    checkpoint_dir: Value[str] | None = None
    checkpoint_steps: Value[int] | None = None
    checkpoint_keep: Value[int] | None = None
    datasets: dict[str, Value[str]] = field(default_factory=dict)  # train, valid, test
    launch: Command | None = None  # the command that starts the ranks
    script: ShellScript | None = None  # the script that contains it
    pod: Pod | None = None
    image: Value[str] | None = None
    mounts: list[Value[str]] = field(default_factory=list)
    queue: Queue | None = None  # the queue it runs on, where the file holds both
    extra: dict[str, Value[Any]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name.value if self.name is not None and self.name.value else "the job"

    def of_commands(self, function: Callable[[list[Command]], T]) -> T:
        """What a function makes of the commands, computed once for all jobs of a script: each has all its commands."""
        if self.script is None or self.script.commands is not self.commands:
            return function(self.commands)
        return self.script.derived(function, self.commands)

    def assignments_of(self, name: str) -> list[EnvVar]:
        """The assignments of the script to a variable, exported or not."""
        return self.script.derived(_assignments_by_name).get(name, []) if self.script is not None else []


@dataclass(frozen=True, slots=True)
class LostValue:
    """A value that its variable does not get: `NAME= value` runs it, `export NAME value` takes it for a name."""

    span: Span  # from the variable to the value
    name: str
    given: str | None  # what the variable gets instead; None where it stays as it was
    text: str  # the value as it is written
    builtin: str = ""  # export, local …
    refused: str = ""  # the word that the builtin refuses as a name


@dataclass(slots=True)
class ShellScript:
    """A shell script's text and commands: a launcher, a boot script, or a command block inside another file."""

    span: Span
    text: str
    commands: list[Command] = field(default_factory=list)
    env: list[EnvVar] = field(default_factory=list)  # what is exported
    kind: str = "shell"  # sbatch | shell | dockerfile
    first_line: int = 1
    assignments: list[EnvVar] = field(default_factory=list)  # every variable that is given a value, exported or not
    assigned: set[str] = field(default_factory=set)  # names that get a value in any way (read, for, :=)
    directives: list[tuple[str, Value[str]]] = field(default_factory=list)  # #SBATCH options, long names, in order
    late_directives: list[Span] = field(default_factory=list)  # #SBATCH lines after the first command: Slurm skips them
    comments: dict[int, str] = field(default_factory=dict)  # by line
    ends_at: int | None = None  # the line of an `exit` or `exec` that every run reaches
    added_options: set[str] = field(default_factory=set)  # that a branch adds to a variable which holds others
    sources_others: bool = False  # sources another script, which may set anything
    stray_braces: list[Span] = field(default_factory=list)
    # `pip install x>=1`: a file named `=1`; the redirection, its text, the program
    version_redirects: list[tuple[Span, str, str]] = field(default_factory=list)
    errors_to_file_one: list[Span] = field(default_factory=list)  # `2>1`
    lost_values: list[LostValue] = field(default_factory=list)
    # the branch of each statement, by its line and column; None where it runs in any case
    branches: list[tuple[tuple[int, int], Branch | None]] = field(default_factory=list)
    _derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def lines(self) -> list[str]:
        return self.derived(_lines_of)

    def exports_of(self, name: str) -> list[EnvVar]:
        """The exports of a variable, in their order."""
        return self.derived(_exports_by_name).get(name, [])

    def derived(self, function: Callable[..., T], part: object = None) -> T:
        """What a function makes of the whole script, or of its commands, computed once: a rule that asks for each
        variable or command would else take a time that grows with the square of the script."""
        if function not in self._derived:
            self._derived[function] = function(self if part is None else part)
        return cast(T, self._derived[function])


def _lines_of(script: ShellScript) -> list[str]:
    return script.text.split("\n")


def _assignments_by_name(script: ShellScript) -> dict[str, list[EnvVar]]:
    return _by_name(script.assignments)


def _exports_by_name(script: ShellScript) -> dict[str, list[EnvVar]]:
    return _by_name(script.env)


def _by_name(variables: list[EnvVar]) -> dict[str, list[EnvVar]]:
    """The variables of each name, in their order."""
    named: dict[str, list[EnvVar]] = {}
    for variable in variables:
        named.setdefault(variable.name, []).append(variable)
    return named


@dataclass(slots=True)
class Volume:
    """A volume of a pod."""

    span: Span
    name: Value[str]
    kind: str  # emptyDir | hostPath | persistentVolumeClaim | configMap | secret ...
    medium: Value[str] | None = None
    size_limit: Value[str] | None = None


@dataclass(slots=True)
class Container:
    """A container of a pod, as far as rules need it."""

    span: Span
    name: Value[str] | None = None
    image: Value[str] | None = None
    requests: dict[str, Value[str]] = field(default_factory=dict)
    limits: dict[str, Value[str]] = field(default_factory=dict)
    mounts: list[tuple[Value[str], str]] = field(default_factory=list)  # path and volume's name
    env: list[EnvVar] = field(default_factory=list)
    workdir: Value[str] | None = None
    runs: str = ""  # its command and arguments, without comments; of an MPIJob's worker those of the launcher too
    script: ShellScript | None = None  # behind `sh -c`
    privileged: bool = False
    claims_devices: bool = False  # by resource claims, which the file may describe elsewhere


@dataclass(slots=True)
class Pod:
    """A pod template of a Kubernetes file; `job` is what it runs."""

    span: Span
    kind: str  # of the object that contains it: PyTorchJob, Pod ...
    role: str = ""  # Master, Worker, Launcher, the name of a replicated job
    replicas: Value[int] | None = None
    containers: list[Container] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    instance: Value[str] | None = None
    instances: list[Value[str]] = field(default_factory=list)  # every type its selectors allow
    host_network: bool = False
    host_ipc: bool = False
    mounted: set[str] = field(default_factory=set)  # volumes that any container mounts, init containers included
    prepared: set[str] = field(default_factory=set)  # volumes that an init container mounts, and may fill
    partial: bool = False  # a patch: what it lacks may stand in the object that it changes
