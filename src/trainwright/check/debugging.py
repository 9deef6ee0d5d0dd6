"""Whether a file says that its run looks for an error, is a trial or measures something. What such a run sets for that
is no leftover of it."""

from __future__ import annotations

import re
from pathlib import PurePath

from trainwright.check.environments import Setting
from trainwright.check.model import Command, File
from trainwright.check.scopes import branches, comment_of, reached, starts_something

_TRIAL = re.compile(
    r"(?<![a-z])(tests?|debug\w*|profil(e|ing)|trial|smoke|sanity|repro|bench(mark)?|dev|devel|toy)(?![a-z])", re.I
)
_FOLDER = re.compile(r"(\w+[-_])?(debug|debugging|profiling|benchmarks?)", re.IGNORECASE)
_QUEUE = re.compile(r"debug|dbg|test|devel|interactive|(?<![a-z])dev(?![a-z])", re.IGNORECASE)
_QUEUES = ("partition", "qos", "reservation", "comment")
_OTHER_SCHEDULER = re.compile(r"#\s?(PBS|BSUB|COBALT|OAR|PJM|MSUB|\$) .*(debug|test|devel)", re.IGNORECASE)
_HEADER = re.compile(
    r"debug|smoke|sanity|profil|benchmark|\brepro|dry.?run|(quick|test|trial) (test|run|check|job|script)"
    r"|\btest(s|ing)? (of|for|the|whether)",
    re.IGNORECASE,
)
# Reasons in the words of several languages: to debug, error, trace.
_REASON = re.compile(
    r"debug|trace|\berrors?\b|illegal|assert|\bnan\b|hang|deadlock|crash|troubleshoot|diagnos|inspect|profil|(?<!a)synchron"
    r"|调试|報錯|报错|错误|デバッグ|디버|отлад|depur|débog|fehler",
    re.IGNORECASE,
)
_TOOLS = re.compile(r"(cuda-)?gdb|compute-sanitizer|cuda-memcheck|nsys|ncu|nvprof|pytest|valgrind|jupyter\S*|py-spy")
_MODULES = re.compile(r"(i?pdb|debugpy|pytest|unittest|cProfile|jupyter\w*)")
_OPTIONS = re.compile(r"-*(debug|fast_dev_run|detect_anomaly|profile\w*|dry_run|smoke_test)$")
_SHORT_MINUTES = 15  # a job of less trains nothing
_STEPS = ("max_steps", "max_iters", "train_iters", "num_train_steps", "max_train_steps")
_FEW_STEPS = 20
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def is_for_debugging(file: File, setting: Setting) -> bool:
    """Whether the file, its name or the lines around the variable say so."""
    return (
        _says_its_name(file, setting)
        or _says_a_comment(file, setting)
        or "TORCH_DISTRIBUTED_DEBUG=DETAIL" in file.text
        or any("debug" in line.lower() for line in branches(file, setting.variable))
        or _says_a_command(setting)
    )


def _says_its_name(file: File, setting: Setting) -> bool:
    path = PurePath(file.path)
    if _TRIAL.search(path.name) or _FOLDER.fullmatch(path.parent.name):
        return True
    job = setting.job
    if job is None:
        return False
    queues = [job.directives[name].value for name in _QUEUES if name in job.directives]
    named = job.name is not None and _TRIAL.search(job.name.value)
    return bool(named or any(_QUEUE.search(one) for one in queues) or _is_short(job.directives.get("time")))


def _is_short(limit: object) -> bool:
    match = _TIME.fullmatch(str(getattr(limit, "value", "")))
    if match is None:
        return False
    days, first, second, third = (int(group) if group else None for group in match.groups())
    if days is not None:
        hours, minutes = first or 0, second or 0
        return days == hours == 0 and minutes <= _SHORT_MINUTES
    if third is not None:
        return first == 0 and (second or 0) <= _SHORT_MINUTES
    return (first or 0) <= _SHORT_MINUTES  # minutes, or minutes:seconds


def _says_a_comment(file: File, setting: Setting) -> bool:
    lines = file.text.split("\n")
    near = f"{comment_of(file, setting.variable)}\n{heading_of(lines, setting.variable.span.line)}"
    if _REASON.search(near):
        return True
    header = []
    for line in lines[1 if lines[0].startswith("#!") else 0 :]:
        if not line.startswith("#") or line.startswith("#SBATCH"):
            break
        header.append(line)
    return _HEADER.search("\n".join(header)) is not None or any(_OTHER_SCHEDULER.match(line) for line in lines)


def heading_of(lines: list[str], number: int) -> str:
    """The comment at the head of the block of lines that sets the variable, or above the blank line before it, and
    those beside its other lines that speak of debugging."""
    above = number - 1
    while above > 0 and lines[above - 1].strip() and not lines[above - 1].lstrip().startswith("#"):
        above -= 1
    if above > 1 and not lines[above - 1].strip():
        above -= 1  # a heading may stand apart; what it is the head of is not a block of its own then
    line = lines[above - 1].strip() if above > 0 else ""
    beside = [
        one.partition(" #")[2] for one in lines[above : number - 1] if re.search(r" #.*debug", one, re.IGNORECASE)
    ]
    return "\n".join([*beside, line if line.startswith("#") else ""])


def _says_a_command(setting: Setting) -> bool:
    """Whether what gets the variable runs under a tool that looks for errors, or is named for a trial."""
    if setting.script is None:
        return False
    commands = reached(setting.script, setting.variable)
    if any(command.program == "echo" and "debug" in " ".join(_words(command)).lower() for command in commands):
        return True
    started = [command for command in commands if starts_something(command)]
    trials = [command for command in started if any(_TRIAL.search(PurePath(word).name) for word in _scripts(command))]
    return (bool(started) and trials == started) or any(_looks_for_errors(command) for command in commands)


def _scripts(command: Command) -> list[str]:
    return [word for word in _words(command) if word.endswith((".py", ".sh")) or word == command.program]


def _looks_for_errors(command: Command) -> bool:
    words = _words(command)
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    if any(_TOOLS.fullmatch(word) for word in words[:1]) or _MODULES.fullmatch(module):
        return True
    if any(0 < _number(command, name) <= _FEW_STEPS for name in _STEPS):
        return True
    on = [
        name
        for name, value in command.options.items()
        if value.value.lower() not in ("false", "0", "none", "no", "null")
    ]
    return any(_OPTIONS.search(name.rpartition(".")[2]) for name in on)


def _number(command: Command, name: str) -> int:
    value = command.options.get(name)
    return int(value.value) if value is not None and value.value.isdecimal() else 0


def _words(command: Command) -> list[str]:
    return [word.value for word in command.words]
