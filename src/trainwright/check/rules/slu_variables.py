"""SLU: variables that Slurm does not expand, and variables that it does not set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around, reasons
from trainwright.check.launches.launchers import is_program, is_torchrun
from trainwright.check.launches.submitters import given_elsewhere
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.registry import Problem, problem

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d(?=\D|$))\}?|\$\([A-Za-z]\w*|`[A-Za-z]\w*|^~(?=/)")
_HERE = re.compile(r"(\$\{?(PWD|SLURM_SUBMIT_DIR)\}?|\$\(pwd\)|`pwd`)(/|$)")
_PATTERNS = {
    "SLURM_JOB_ID": "%j", "SLURM_JOBID": "%j", "SLURM_JOB_NAME": "%x", "USER": "%u", "SLURM_JOB_USER": "%u",
    "SLURM_ARRAY_JOB_ID": "%A", "SLURM_ARRAY_TASK_ID": "%a",
}  # fmt: skip
_FILLS_IN = re.compile(r"envsubst|\bTemplate\(|substitute\(|\bsed\b|\.replace\(|\.format\(|\bperl\b")
_FILLED_IN = re.compile(r"envsubst|\btemplate\b|fill(ed|s)? in|replaced by|substitut", re.IGNORECASE)
_OF_A_LOGIN = re.compile(r"HOME|USER|LOGNAME|PWD|SCRATCH|WORK|SLURM")
_SET_IN_A_JOB = re.compile(
    r"\$\{?SLURM_(JOB|ARRAY|STEP|SUBMIT|N?NODE|N?TASK|NTASKS|NPROCS|PROCID|LOCALID|CPUS|GPUS|MEM|CLUSTER_NAME|TASKS)"
)
_COUNTED = re.compile(r"nodes|n?tasks.*|cpus-per-.*|gpus.*|gres|mem.*|time.*|array|mincpus|tmp")
_OWN_NAME = re.compile(r"\$\{?([a-z]\w*)")  # those of Slurm and of a login have capitals
_PLAIN = re.compile(r"[\w./:@,%=-]+")
_MANY = 4  # variables that nobody sets: a program fills the script in
# Variables that Slurm sets only where the option is given.
_ONLY_WITH = {
    "SLURM_GPUS": "gpus",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}
_REQUESTS_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")

# What programs read from their environment alone: NCCL, libfabric and torch, and a program that no launcher starts.
_READ_BY_PROGRAMS = re.compile(r"(TORCH_)?NCCL_\w+|(GLOO|FI|OFI_NCCL)_\w+")
# What libraries read there too; a command that the batch script runs itself may be meant to.
_READ_BY_LIBRARIES = re.compile(
    r"(HF|HUGGINGFACE|TRANSFORMERS|DIFFUSERS|WANDB|MLFLOW|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|TOKENIZERS|OMP|MKL)_\w+"
    r"|PYTHONPATH|XDG_CACHE_HOME"
)
_READS_NONE = {
    "cd", "pushd", "popd", "mkdir", "ls", "cp", "mv", "rm", "ln", "touch", "cat", "head", "tail", "tr", "cut", "sed",
    "echo", "printf", "date", "hostname", "pwd", "scontrol", "squeue", "nvidia-smi", "set", "shopt", "ulimit", "umask",
    "export", "declare", "unset", "source", ".", "module", "ml", "conda", "trap", "wait", "sleep", "exit", "true",
    ":", "[", "[[", "test", "sort", "dirname", "basename", "srun", "local", "return", "read", "seq",
}  # fmt: skip
_OTHER_SCRIPT = re.compile(r"(bash|sh|zsh)|.*\.(sh|bash)")  # which may export the same
_PRINTS = re.compile(r"^\s*(echo|printf)\b.*$", re.MULTILINE)
_LAUNCHERS = ("accelerate", "deepspeed")
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


def unexpanded(file: File, script: ShellScript) -> Iterator[Problem]:
    """`#SBATCH --output=$HOME/logs/%j.out`: the log goes to a directory named `$HOME`, or `~`, and without one the job
    ends with 0:53."""
    named = [
        (name, value)
        for name, value in script.directives
        if name != "comment" and _VARIABLE.search(value.value) is not None
    ]
    if any(name == "job-name" and "SLURM_JOB_NAME" in value.value for name, value in named):
        return  # a program fills it in: no person names a job after itself
    if not named or _is_filled_in(file, script):
        return
    given = given_elsewhere(file) if file.path != "<stdin>" else frozenset()
    named = [one for one in named if one[0] not in given or _COUNTED.fullmatch(one[0])]  # sbatch refuses those anyway
    if not named:
        return
    value = named[0][1]
    variables = list(dict.fromkeys(match[0] for _, one in named for match in _VARIABLE.finditer(one.value)))
    unset = {v.strip("${}(`") for v in variables if not _OF_A_LOGIN.search(v)} - script.assigned
    lines = sorted({one.span.line for _, one in named[1:]} - {value.span.line})
    more = f" (and in {len(lines)} more line{'s' if len(lines) > 1 else ''})" if lines else ""
    shown = _shown(next(match[0] for match in _VARIABLE.finditer(value.value)))
    yield problem(
        value,
        f"Slurm does not expand {shown} in an #SBATCH line{more}",
        _instead_of_all(named, script),
        level="info" if _leaves_many_open(script, unset) or {one for one, _ in named} == {"job-name"} else None,
        why=reasons.NOT_A_SHELL,
    )


def _shown(written: str) -> str:
    if written.startswith("${") and not written.endswith("}"):
        return f"{written}…}}"  # with a default, as in ${EMAIL:-kim@example.org}
    return "$(…)" if written.startswith("$(") else "`…`" if written.startswith("`") else written


def _leaves_many_open(script: ShellScript, unset: set[str]) -> bool:
    """Whether many variables are set nowhere in the script, in its directives or below: a program fills it in."""
    code = [line for line in script.lines if not line.lstrip().startswith("#")] if unset else []
    below = {name for line in code for name in _OWN_NAME.findall(line)} - script.assigned
    return len(unset | below) >= _MANY


def _launches_per_task(script: ShellScript) -> bool:
    """Whether each task of srun is a launcher, of which a node needs one."""
    return any(
        (command.program in _LAUNCHERS or is_torchrun(command))
        and command.runner is not None
        and command.runner.program == "srun"
        for command in script.commands
    )


def _instead_of_all(named: list[tuple[str, Value[str]]], script: ShellScript) -> str:
    """What to do with each option, said once where several need the same."""
    options: dict[str, list[str]] = {}
    launches = _launches_per_task(script)
    for name, value in named:
        one_task = launches and name == "ntasks-per-node"
        fix = "write 1, as srun starts a launcher per task" if one_task else _literal(name, value, script)
        fix = fix or _instead(name, value.value)
        options.setdefault(fix, []).append(f"--{name}")
    if len(options) == 1:
        return next(iter(options))
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {fix}" for fix, names in options.items())


def _literal(name: str, value: Value[str], script: ShellScript) -> str:
    """The option with the values that the script itself gives its variables, which the caller of sbatch has not. One
    that is a default or of a branch is a parameter of the script."""
    given: dict[str, set[str]] = {}
    for one in script.assignments:
        fixed = one.applies and not one.prefix and one.value.known and not one.value.default
        given.setdefault(one.name, set()).add(one.value.value if fixed else "$")
    known = {of: next(iter(texts)) for of, texts in given.items() if len(texts) == 1}
    written = _VARIABLE.sub(lambda match: known.get(match[1], "$"), value.value)
    of_a_path = name in ("output", "error", "input")
    return f"write --{name}={written}" if not of_a_path and _PLAIN.fullmatch(written) else ""


def _instead(name: str, text: str) -> str:
    if name == "chdir" and _HERE.fullmatch(text):
        return "remove it: a job starts where sbatch is called"
    if name in ("output", "error", "input"):
        written = _VARIABLE.sub(lambda match: _PATTERNS.get(match[1], match[0]), _HERE.sub("", text))
        open_ = re.search(r"[$`]|^~|^$", written)
        if open_:
            return "use a literal path of a directory that exists; %x, %j and %u are the job and the user"
        return f"write {written}" + (", where that directory exists" if "/" in written.strip("./") else "")
    if re.search(r"\$\{?\d|\$\(|`", text):
        return f"remove it, and give it on the command line: sbatch --{name}=… …"
    if _SET_IN_A_JOB.search(text):
        return "write a literal value: Slurm sets the variable in the job only"
    # What sbatch refuses in the script it also refuses where the command line gives another value.
    here = re.sub(r"^~", "$HOME", text)  # nor does bash expand ~ behind `--chdir=`
    passed = f"remove it, and pass it: sbatch --{name}={here} …"
    return f"write a literal path, or {passed}" if name == "chdir" else passed


def _is_filled_in(file: File, script: ShellScript) -> bool:
    """Whether a comment or a file of the repository says that a program fills the script in."""
    if any(_FILLED_IN.search(text) for text in script.comments.values()):
        return True
    if file.path == "<stdin>":
        return False
    path = Path(file.path).absolute()
    return any(_fills_in(path.name, text) for place, text in around.texts(str(path.parent)) if place != path)


def _fills_in(name: str, text: str) -> bool:
    return name in text and "sbatch" in text and _FILLS_IN.search(text) is not None


def unset_counts(script: ShellScript) -> Iterator[Problem]:
    """A variable that Slurm sets for another way to request GPUs than the one that is used."""
    given = {name for name, _ in script.directives}
    if not given & set(_REQUESTS_GPUS):
        return
    for name, option in _ONLY_WITH.items():
        passed = any(re.search(rf"\b(sbatch|salloc)\b.*--{option}\b", text) for text in script.comments.values())
        if option in given or name in script.assigned or passed:
            continue
        command = _reader_of(script, name, option)
        if command is not None:
            yield problem(
                command.words[0],
                f"${name} is empty: Slurm sets it for --{option}, and the script requests GPUs with "
                f"--{sorted(given & set(_REQUESTS_GPUS))[0]}",
                f"use {_count_of(script, name, command)}"
                + (f", or request them with --{option}" if _may_be_requested(script) else ""),
                why=reasons.COUNT_OF_NOTHING,
            )


def _may_be_requested(script: ShellScript) -> bool:
    """Whether the same number may stand in the other option. With `--gpus=a100:4` the variable is `a100:4` and no
    number, and on several nodes one option counts the GPUs of a node and the other those of all."""
    nodes = dict(script.directives).get("nodes")
    requested = [value.value for name, value in script.directives if name in _REQUESTS_GPUS]
    typed = any(re.match(r"(gpu:)?[A-Za-z]", one.removeprefix("gpu:")) for one in requested)
    return not typed and (nodes is None or nodes.value == "1")


def _count_of(script: ShellScript, name: str, reader: Command) -> str:
    """What holds the same number: SLURM_GPUS counts those of all nodes, and a launcher takes those of its own."""
    nodes = dict(script.directives).get("nodes")
    several = name == "SLURM_GPUS" and nodes is not None and nodes.value != "1"
    given = reader.options.get("nproc_per_node")
    per_node = given is not None and name in given.text
    return "$((SLURM_NNODES * SLURM_GPUS_ON_NODE))" if several and not per_node else "$SLURM_GPUS_ON_NODE"


def _reader_of(script: ShellScript, name: str, option: str) -> Command | None:
    """The first command that needs a variable, without a default for it anywhere. One that only shows it does not."""
    copies = [a.name for a in script.assignments if re.search(rf"\$\{{?{name}\b", a.value.value)]
    for one in (name, *copies):
        tested = rf"\$\{{{one}(:|-|\+)|-[nz]\s+[\"']?\$\{{?{one}\b|\[\s+[\"']?\$\{{?{one}\}}?[\"']?\s+\]"
        if re.search(tested, script.text) or (one == name and re.search(rf"\b{one}\s*\+?=", script.text)):
            return None
        if sum(a.name == one for a in script.assignments) > 1:
            return None  # a branch of the script gives another value
    pattern = re.compile(rf"\$\{{?{name}\}}?(?!\w)")
    for command in script.commands:
        of_step = command.runner is not None and option.replace("-", "_") in command.runner.options
        shows = command.program in ("echo", "printf") and not command.piped
        if not of_step and not shows and any(pattern.search(word.value) for word in command.words):
            return command
    return None


def lost_exports(script: ShellScript) -> Iterator[Problem]:
    """`srun --export=NCCL_DEBUG=INFO python train.py`: what the script exports does not reach the tasks. Without
    `--export`, srun takes that of the #SBATCH lines."""
    inherited = None if "SLURM_EXPORT_ENV" in script.text else dict(script.directives).get("export")
    for command in script.commands:
        given = command.options.get("export") or inherited
        if command.program != "srun" or given is None or not given.known or not given.value:
            continue
        names = [part.partition("=")[0].strip() for part in given.value.split(",")]
        lost = [] if "ALL" in map(str.upper, names) else _lost(script, command, names)
        if lost:
            of_step = given is not inherited and given.value.upper() not in ("NONE", "NIL")
            yield problem(
                given,
                f"the tasks do not get {', '.join(lost[:3])}, which the script exports",
                f"write --export=ALL,{given.value}" if of_step else "start the tasks with srun --export=ALL",
                why=reasons.LOST_EXPORTS if any(map(_is_of_ranks, lost)) else reasons.LOST_DEFAULTS,
            )
            return


def _lost(script: ShellScript, srun: Command, names: list[str]) -> list[str]:
    """The exports above a step that its tasks read from their environment only, and that nothing else hands on."""
    own = [command for command in script.commands if command.runner is srun]
    text = _PRINTS.sub("", script.text)
    python = any(is_program(command) for command in own)
    alone = _is_for_tasks_alone(script, own)
    above = {one.name for one in script.env if one.applies and not one.prefix and one.span.line < srun.span.line}
    return [
        name
        for name in sorted(above - set(names))
        if (
            _READ_BY_PROGRAMS.fullmatch(name)
            or (python and name in _RENDEZVOUS)
            or (alone and _READ_BY_LIBRARIES.fullmatch(name))
        )
        and not re.search(rf"\$\{{?{name}\b", text)
    ]


def _is_of_ranks(name: str) -> bool:
    return name in _RENDEZVOUS or _READ_BY_PROGRAMS.fullmatch(name) is not None


def _is_for_tasks_alone(script: ShellScript, started: list[Command]) -> bool:
    """Whether the batch script itself starts nothing that reads its environment, no other step gets all of it, and the
    tasks start a program, not another script, which may export the same."""
    own = [command for command in script.commands if command.runner is None]
    inside = [command.program for command in started]
    chosen = (command.options["export"].value for command in own if "export" in command.options)
    return (
        all(command.program in _READS_NONE for command in own)
        and not any("ALL" in given.upper() for given in chosen)
        and any(name not in _READS_NONE for name in inside)
        and not any(map(_OTHER_SCRIPT.fullmatch, inside))
    )
