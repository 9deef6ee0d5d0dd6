"""The options that a launcher reads itself. What follows the script is the script's, even under the same name:
`torchrun --nproc_per_node=4 evaluate.py --nproc 32` starts 4 processes."""

from __future__ import annotations

import re

from trainwright.check.launches.options import Options, is_script_or_option, split, table
from trainwright.check.model import Command, Job, Value

STARTERS = ("srun", "torchrun", "python", "python3", "accelerate", "deepspeed", "mpirun")  # of what a job is for
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_PYTHON = re.compile(r"python3?(\.\d+)?")


def is_torchrun(command: Command | None) -> bool:
    """Whether a command is torchrun, by that name or as a module of Python."""
    if command is None:
        return False
    return command.program == "torchrun" or any(word.value in _MODULES for word in command.words[1:6])


def is_python(name: str) -> bool:
    """Whether a program's name is the interpreter's."""
    return _PYTHON.fullmatch(name) is not None


def is_program(command: Command) -> bool:
    """Whether a command is a program of Python and no launcher: its options mean what the program makes of them."""
    return is_python(command.program) and not is_torchrun(command)


def launcher_of(command: Command) -> tuple[Options | None, int]:
    """The options of the launcher that a command is, and the index of its first argument."""
    if is_torchrun(command):
        module = next((n for n, word in enumerate(command.words) if word.value in _MODULES), 0)
        return table()["torchrun"], module + 1
    if [word.value for word in command.words[:2]] == ["accelerate", "launch"]:
        return table()["accelerate"], 2
    return (table()["deepspeed"], 1) if command.program == "deepspeed" else (None, 1)


def own_options(command: Command) -> dict[str, Value[str]]:
    """The options before the script, by name with underscores; of a program none."""
    if is_program(command):
        return {}
    end = _end(command)
    own: dict[str, Value[str]] = {}
    for index, word in enumerate(command.words[1:end], start=1):
        match = re.match(r"--?([A-Za-z][\w-]*)(=)?", word.value)
        if match is None:
            continue
        name = match[1].replace("-", "_")
        last = command.options.get(name)
        script_next = match[2] is None and index + 1 >= end  # the value is missing
        if last is not None and last.key == word.span and last.value and not script_next:
            own[name] = last
        elif match[2]:
            own[name] = Value(word.value[match.end() :], word.span, word.text, word.span, word.known, word.default)
        else:
            following = command.words[index + 1] if index + 1 < end else None
            flag = following is None or is_script_or_option(following)
            own[name] = Value("", word.span, "", word.span) if flag or following is None else following
    return own


def options_of_launcher(job: Job) -> dict[str, Value[str]]:
    """The same of a job's launch command; none where it has no such command."""
    return own_options(job.launch) if job.launch is not None else {}


def _end(command: Command) -> int:
    """Where the launcher's own words end. A variable that stands alone may hold options: the script comes after it."""
    launcher, start = launcher_of(command)
    words = command.words
    if launcher is not None:
        _, script, rest = split(command, launcher, start)
        if script is not None and script.known:
            return len(words) - len(rest) - 1
    return next((n for n, word in enumerate(words) if word.value.endswith(".py")), len(words))


def hides_options(words: list[Value[str]]) -> bool:
    """Whether a variable that stands alone (`$ARGS`) may hold options; the value of an option is none."""
    takers = (n for n, word in enumerate(words) if word.value.startswith("-") and "=" not in word.value)
    values = {n + 1 for n in takers if not _is_switch(words[n].value)}
    return any(not word.known and word.value.startswith("$") for n, word in enumerate(words) if n not in values)


def _is_switch(name: str) -> bool:
    """Whether an option of a launcher takes no value (`--standalone`)."""
    return any(table()[launcher].takes_value.get(name) is False for launcher in ("torchrun", "accelerate", "deepspeed"))


# Options of launchers that take a number or an address: any other text is refused, or found nowhere.
NUMBERS_AND_ADDRESSES = frozenset({
    "node_rank", "nnodes", "nproc_per_node", "master_port", "master_addr", "rdzv_endpoint", "machine_rank",
    "num_machines", "num_processes", "main_process_ip", "main_process_port", "num_nodes", "num_gpus",
})  # fmt: skip
