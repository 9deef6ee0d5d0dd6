"""Whether a file says that its run looks for an error, is a trial or measures something. What such a run sets for that
is no leftover of it."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import PurePath

from trainwright.check.launches.environments import Setting
from trainwright.check.launches.scopes import any_reached, branches, comment_of, starts_something
from trainwright.check.model import Command, EnvVar, File, Job
from trainwright.check.trial_words import NAME, SENTENCE

_FOLDER = re.compile(r"(\w+[-_])?(debug|debugging|profiling|benchmarks?)", re.IGNORECASE)
_FOR_TESTS = r"debug|devel|(?<![a-z])([cg]pu|short)?test(s|ing|q)?(?![a-z])"
_QUEUE = re.compile(rf"{_FOR_TESTS}|dbg|interactive|(?<![a-z])dev(?![a-z])", re.IGNORECASE)
_QUEUES = ("partition", "qos", "reservation", "comment")
_OTHER_SCHEDULER = re.compile(rf"#\s?(PBS|BSUB|COBALT|OAR|PJM|MSUB|\$) .*({_FOR_TESTS})", re.IGNORECASE)
# Reasons in the words of several languages: to debug, error, trace. German joins words: `Laufzeitfehler`.
_REASON = re.compile(
    r"(?<![a-z])(debug\w*|(back|stack|s)?trac(es?|ed|ing|ers?|ebacks?)|errors?|illegal|assert(s|ed|ions?)?|nan|hang(s|ing)?"
    r"|hung|deadlock\w*|crash\w*|troubleshoot\w*|diagnos\w*|inspect\w*|profil(es?|ed|ers?|ing)|synchron\w*|depur\w*)"
    r"(?![a-z])|调试|報錯|报错|错误|デバッグ|디버|отлад|débog|fehler",
    re.IGNORECASE,
)
_REMARK = re.compile(r" #.*(?<![a-z])debug", re.IGNORECASE)
_TOOLS = re.compile(r"(cuda-)?gdb|compute-sanitizer|cuda-memcheck|nsys|ncu|nvprof|pytest|valgrind|jupyter\S*|py-spy")
_MODULES = re.compile(r"(i?pdb|debugpy|pytest|unittest|cProfile|jupyter\w*)")
_OPTIONS = re.compile(r"-*(debug(_?mode)?|fast_dev_run|detect_anomaly|profile\w*|dry_run|smoke_test)$")
# `EXP_NAME=tmp_test`, `--run_name debug`, `logger.wandb.name=test`; not `--dataset-name test` nor `docker run test`
_RUN = r"(exp|experiment|run|job|wandb|wandb[_-](run|exp|experiment))[_-]?name|wandb\.(run[_-])?name"
_VARIABLE = r"((exp|experiment|run|job|wandb)(_(run|exp|job))?(_(name|id|tag|comment|group|title|project))?|name)"
_NAMED = re.compile(
    rf"(?<![^\s\"'(;])({_VARIABLE}=|-{{1,2}}([\w.]+\.)?({_RUN})[= ] *|\+{{0,2}}([\w.]+\.)?({_RUN})=)"
    r"[\"']?(?P<value>[\w.-]+)",
    re.IGNORECASE,
)
_SHORT_MINUTES = 15  # a job of less trains nothing
_STEPS = ("max_steps", "max_iters", "train_iters", "num_train_steps", "max_train_steps")
_FEW_STEPS = 20
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def is_for_debugging(file: File, setting: Setting) -> bool:
    """Whether the file, its name or the lines around the variable say so."""
    return (
        file.derived(_has_debugging_name)
        or _is_debugging_job(setting.job)
        or _REASON.search(f"{comment_of(file, setting.variable)}\n{heading_of(file, setting.variable)}") is not None
        or file.derived(_has_debugging_header)
        or any("debug" in line.lower() for line in branches(file, setting.variable))
        or _runs_debugging_command(setting)
    )


def names_a_trial(file: File) -> bool:
    """Whether a name that a script gives its run is one of a trial."""
    lines = (line for line in file.lines if not line.lstrip().startswith("#"))
    return any(NAME.search(match["value"]) for line in lines for match in _NAMED.finditer(line))


def _has_debugging_name(file: File) -> bool:
    path = PurePath(file.path)
    return NAME.search(path.name) is not None or _FOLDER.fullmatch(path.parent.name) is not None


def _is_debugging_job(job: Job | None) -> bool:
    """By its name, its queue or its time limit."""
    if job is None:
        return False
    queues = [job.directives[name].value for name in _QUEUES if name in job.directives]
    named = job.name is not None and NAME.search(job.name.value)
    return bool(named or any(_QUEUE.search(one) for one in queues) or _is_short(job.directives.get("time")))


def _is_short(limit: object) -> bool:
    """Whether a time limit is below 15 minutes; 0 is none."""
    match = _TIME.fullmatch(str(getattr(limit, "value", "")))
    if match is None:
        return False
    days, *numbers = (int(group) if group else None for group in match.groups())
    first, second, third = (number or 0 for number in numbers)
    if days is not None:
        seconds = ((days * 24 + first) * 60 + second) * 60 + third
    elif numbers[2] is not None:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second  # minutes, or minutes:seconds
    return 0 < seconds < _SHORT_MINUTES * 60


def _has_debugging_header(file: File) -> bool:
    """Whether the comment at the head of the file, or a line for another scheduler, speaks of debugging."""
    lines = file.lines[1 if file.lines[0].startswith("#!") else 0 :]
    header = takewhile(lambda line: line.startswith("#") and not line.startswith("#SBATCH"), lines)
    return (
        SENTENCE.search("\n".join(header)) is not None
        or any(_OTHER_SCHEDULER.match(line) for line in file.lines)
        or "TORCH_DISTRIBUTED_DEBUG=DETAIL" in file.text
    )


def heading_of(file: File, variable: EnvVar) -> str:
    """The comment at the head of the block of lines that sets the variable, or above the blank line before it, and
    one beside its other lines that speaks of debugging."""
    headings = file.derived(_headings)
    return headings[variable.span.line - 1] if 0 < variable.span.line <= len(headings) else ""


def _headings(file: File) -> list[str]:
    """The heading of each line."""
    lines, headings = file.lines, list[str]()
    heading = remark = ""
    for at, line in enumerate(lines):
        above = lines[at - 1].strip() if at else ""
        if not above or above.startswith("#"):  # a block begins; its heading may stand apart
            head = above if above or at < 2 else lines[at - 2].strip()
            heading, remark = head if head.startswith("#") else "", ""
        headings.append(f"{remark}\n{heading}")
        if _REMARK.search(line):
            remark = line.partition(" #")[2]
    return headings


def _runs_debugging_command(setting: Setting) -> bool:
    """Whether what gets the variable runs under a tool that looks for errors, or is named for a trial."""
    script, variable = setting.script, setting.variable
    if script is None:
        return False
    if any_reached(script, variable, _prints_debug) or any_reached(script, variable, _looks_for_errors):
        return True
    return any_reached(script, variable, starts_something) and not any_reached(script, variable, _starts_no_trial)


def _prints_debug(command: Command) -> bool:
    return command.program == "echo" and "debug" in " ".join(_words(command)).lower()


def _starts_no_trial(command: Command) -> bool:
    return starts_something(command) and not any(NAME.search(PurePath(word).name) for word in _scripts(command))


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
