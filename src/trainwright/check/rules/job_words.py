"""JOB: words of a launch command that its program refuses: misspelt options of srun, a file where `-m` takes a module,
a rendezvous that torchrun does not know; and a job's number as a port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from trainwright.check import reasons
from trainwright.check.launches.launchers import NUMBERS_AND_ADDRESSES, is_python, is_torchrun, launcher_of, own_options
from trainwright.check.launches.options import SWITCHED, is_script_or_option, split, table
from trainwright.check.model import Command, Job, Value
from trainwright.check.registry import Problem, problem
from trainwright.errors import nearest

_OPTION = re.compile(r"--[A-Za-z][\w-]*")
_OF_PLUGINS = re.compile(r"--(no-)?container|--auto-")  # pyxis, HyperPod
_NEAR_MISS = 0.85
_OFF = ("false", "no", "0")
_TAKES_NEXT = ("-W", "-X", "--check-hash-based-pycs")
_BACKENDS = ("c10d", "etcd", "etcd-v2", "static")  # that torch 2.13 registers; entry points may add others
_RESEMBLES = 0.7
_LETTERS = re.compile(r"\$(\{\w+\}|[A-Za-z_]\w*)")
_OF_TASK = re.compile(r"SLURM_(NODEID|PROCID|LOCALID)\b")
_JOB_ID = re.compile(r"\$\{?SLURM_JOB_?ID\}?")


def misspelt_words(command: Command) -> Iterator[Problem]:
    """What is wrong with a command whatever the job."""
    if command.program == "srun":
        yield from _options_of_srun(command)
    yield from _file_as_module(command)
    yield from _wrong_number_of_values(command)
    yield from _kept_from_the_shell(command)
    if is_torchrun(command):
        yield from _backend(command)


def _options_of_srun(command: Command) -> Iterator[Problem]:
    """Plugins add options of their own to srun: only a near miss is reported. It takes the beginning of an option."""
    known = table()["srun"]
    for word in split(command, known)[0]:
        name = word.value.partition("=")[0]
        if not _OPTION.fullmatch(name) or _OF_PLUGINS.match(name):
            continue
        near = "" if any(one.startswith(name) for one in known.takes_value) else known.nearest(name, _NEAR_MISS)
        if near:
            yield problem(word, f"srun has no option {name}", f"did you mean {near}?", why=reasons.STEP_REFUSED)


def _file_as_module(command: Command) -> Iterator[Problem]:
    """`python -m train.py` imports the module `py` of a package `train`."""
    module, flag = _module(command)
    if module is None or not module.known or not re.fullmatch(r"[\w./-]+\.py", module.value):
        return
    name = module.value.removesuffix(".py").replace("/", ".").strip(".")
    what = f"{flag} takes the name of a module, and this is a file: Python looks for a module `py`"  # once for several
    path = "/" in module.value or "." not in name  # `tools.train.py` is no file's name
    either = f"remove {flag}, or " if path else ""
    yield problem(module, what, f"{either}write {flag} {name}", why=reasons.FILE_AS_MODULE)


def _wrong_number_of_values(command: Command) -> Iterator[Problem]:
    """`accelerate launch --main_process_port train.py`: the script is taken for the port. A note, unless the script's
    options follow, which the launcher then refuses."""
    launcher, start = launcher_of(command)
    if launcher is None:
        return
    options, script, rest = split(command, launcher, start)
    refused = any(_OPTION.match(word.value) and not launcher.has(word.value.partition("=")[0]) for word in rest)
    program = launcher.program.split()[0]
    for word, following in pairwise([*command.words, None]):
        takes = launcher.takes(word.value) if word is not None and word in options else None
        if word is None or takes is None:
            continue
        if takes and (following is None or is_script_or_option(following)):
            taken = f": {program} takes {following.value} for it" if following and following is script else ""
            yield problem(
                word,
                f"{word.value} has no value{taken}",
                f"write the value after {word.value}, or remove the option",
                level=None if taken and refused else "info",
            )
        elif not takes and following is not None and following is not script and following.value in SWITCHED:
            what = f"{word.value} takes no value: {program} takes {following.value} for the script"
            off = following.value.lower() in _OFF  # the option alone switches it on
            yield problem(following, what, f"remove {f'{word.value} ' if off else ''}{following.value}", level="info")


def _kept_from_the_shell(command: Command) -> Iterator[Problem]:
    """`ARGS='--nnodes=$SLURM_NNODES'; torchrun $ARGS …`: what single quotes keep is not expanded later."""
    by_shell = command.runner is not None and command.runner.program != "srun"  # ssh hands its words to another shell
    if launcher_of(command)[0] is None or by_shell:
        return
    for name, value in own_options(command).items():
        match = _LETTERS.search(value.value) if name in NUMBERS_AND_ADDRESSES and value.known else None
        if match is not None:
            what = f"--{name} gets the letters {match[0]}: in single quotes, or behind a backslash, nothing is expanded"
            yield problem(value, what, _expanded(command, name, match[0]), why=reasons.KEPT_FROM_THE_SHELL)
            return


def _expanded(command: Command, option: str, variable: str) -> str:
    """Between double quotes the batch script expands a variable, which gives all tasks the value of the first."""
    if command.runner is not None and _OF_TASK.search(variable):
        return f'let each task expand it: srun bash -c "… --{option} \\{variable} …"'
    return "write double quotes, and no backslash"


def _module(command: Command) -> tuple[Value[str] | None, str]:
    """The word that a command takes for a module's name, and the option that makes it one."""
    launcher, start = launcher_of(command)
    if launcher is not None:
        options, script, _ = split(command, launcher, start)
        flag = next((option.value for option in options if option.value in ("-m", "--module")), "")
        return (script if flag else None), flag
    words = command.words if is_python(command.program) else []
    at = 1
    while at < len(words) - 1 and words[at].value.startswith("-") and words[at].known:
        if words[at].value == "-m":
            return words[at + 1], "-m"
        at += 2 if words[at].value in _TAKES_NEXT else 1
    return None, ""


def _backend(command: Command) -> Iterator[Problem]:
    backend = own_options(command).get("rdzv_backend")
    if backend is None or not backend.known or not backend.value or backend.value.strip("'\"").lower() in _BACKENDS:
        return
    near = nearest(backend.value.lower(), _BACKENDS, _RESEMBLES)
    yield problem(
        backend,
        f"torchrun knows no rendezvous backend {backend.value}",
        f"did you mean {near}?" if near else f"write one of {', '.join(_BACKENDS)}, unless a plugin brings this one",
        level=None if near else "info",
    )


def job_number_as_port(job: Job) -> Iterator[Problem]:
    """`MASTER_PORT=$SLURM_JOB_ID`, without arithmetic."""
    for variable in job.assignments_of("MASTER_PORT"):
        if _JOB_ID.fullmatch(variable.value.value):
            yield problem(
                variable.value,
                "the job's number is the port: there is none above 65535, and none below 1024 for users",
                "write $((10000 + SLURM_JOB_ID % 50000))",
                level="warning",
                why=reasons.NUMBER_AS_PORT,
            )


def if_copied(one: Problem, place: str) -> Problem:
    """A note where the files are taken to be a copy of those beside the script."""
    message = f"{one.message} (if {place} has the files of this directory)"
    return replace(one, level="info", message=message, edit=None) if place else one
