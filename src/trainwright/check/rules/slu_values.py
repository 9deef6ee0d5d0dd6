"""SLU: values of #SBATCH options that sbatch or its controller refuses, as tried with Slurm 22.05. What a newer version
takes (`--nodes=1,2-8:2`) passes, and so does a word that may stand for a value that another program fills in."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator

from trainwright.check import reasons
from trainwright.check.model import File, ShellScript, Value
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.slu_characters import plain
from trainwright.errors import nearest

_SHORT = {"-m ": "distribution", "-b ": "begin"}
_FILLED_IN = re.compile(r"[${}<>]|\.\.\.|…|__")
_COUNTED = re.compile(r"nodes|n?tasks.*|(cpus|cores|sockets|threads)-per-.*|mem(-per-.*)?|tmp|time(-min)?")
_GPU_COUNTED = re.compile(r"gpus(-per-.*)?|gres")  # with a name before the number, which may be any text of ASCII
_NUMERALS = {
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "sixteen", "all", "max",
    "auto", "none", "half", "full", "unlimited",
}  # fmt: skip
_COUNT = re.compile(r"\+?0*[1-9]\d*")
_NODES = re.compile(r"[+-]?(\d+)[kKmM]?(?:-(\d+)[kKmM]?)?")
_NODE_SIZES = re.compile(r"\d[\d,:-]*")  # of Slurm 23.02 and later: `1,2,4-8:2`
_RANGE = re.compile(r"\d+-\d+")
_MEMORY = re.compile(r"(\+?\d+|-0+)([KMGTP]B?)?", re.IGNORECASE)
_TIME = re.compile(r"-1|\d+(-(\d+(:\d+){0,2})?)?|\d+(:\d+){1,2}")
_LONGEST = 14  # days of a job
_NO_LIMIT = ("infinite", "unlimited")
UNITS = re.compile(r"(\d+\s*(d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?))+", re.I)
_MOMENTS = ("now", "today", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime")
_LATER = re.compile(r"now[+-](\d+)([a-z]+)", re.IGNORECASE)
_SPANS = re.compile(r"(second|minute|hour|day|week)s?", re.IGNORECASE)
_SIGNAL = re.compile(r"([BR:]*)([A-Za-z0-9]+)(?:@(\d*))?", re.IGNORECASE)
_SIGNALS = {one.name.removeprefix("SIG") for one in signal.Signals} | {"CLD", "POLL", "IOT", "STKFLT", "PWR"}
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_LATEST_SIGNAL = 65535  # seconds before the end
_DISTRIBUTION = re.compile(
    r"(\*|block|cyclic|arbitrary|plane:?=0*[1-9]\d*)?(:(\*|block|cyclic|fcyclic)?){0,2}(,?(no)?pack)?", re.IGNORECASE
)
_ARRAY = re.compile(r"\[?([\d,:-]*)\]?(%.*)?\]?")
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_GPUS = re.compile(r"(?:[A-Za-z]\w*:)*\d+\.\d+")
_HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread", "help")
_MAILS = (
    "none", "begin", "end", "fail", "requeue", "all", "invalid_depend", "stage_out", "time_limit", "time_limit_90",
    "time_limit_80", "time_limit_50", "array_tasks",
)  # fmt: skip
_DEPENDENCY = re.compile(r"(after|afterany|afterok|afternotok|aftercorr|afterburstbuffer|expand|singleton)\b", re.I)
_EXCLUSIVE = {
    "mem": ("mem-per-cpu", "mem-per-gpu"),
    "mem-per-cpu": ("mem-per-gpu",),
    "ntasks-per-gpu": ("gpus-per-task", "ntasks-per-node"),
    "core-spec": ("thread-spec",),
}
_NO_VALUE = {
    "requeue", "no-requeue", "hold", "wait", "parsable", "contiguous", "overcommit", "spread-job", "use-min-nodes",
    "reboot", "ignore-pbs", "test-only", "oversubscribe",
}  # fmt: skip


def refused_values(file: File, script: ShellScript) -> Iterator[Problem]:
    lines = file.text.split("\n")
    for name, value in script.directives:
        fix = "" if value.default or _FILLED_IN.search(value.value) else _fix(name, value, lines)
        if fix:
            what = f"sbatch refuses --{name}={value.value}"
            yield problem(value, what, fix, level="error", why=reasons.REFUSED)
    if not re.search(r"^#SBATCH\s+(het|pack)job\b", file.text, re.MULTILINE):  # each part has options of its own
        yield from _together(script)


def _fix(name: str, value: Value[str], lines: list[str]) -> str:
    """What to write instead of a value that sbatch refuses; empty where it takes the value, or may."""
    key = value.key
    if key is None or not value.value or ("%" in value.value and name != "array"):
        return ""
    written = lines[key.line - 1][key.column - 1 : key.end_column - 1]
    name = _SHORT.get(written[:3], name)
    if name in _NO_VALUE:
        return f"write --{name} alone: the option has no value" if written.startswith(f"--{name}=") else ""
    if name == "exclusive" and not written.startswith("--exclusive="):
        return ""  # a word that is left over, which is another finding
    counted = _COUNTED.fullmatch(name) or (_GPU_COUNTED.fullmatch(name) and not value.value.isascii())
    if counted and written.startswith(f"--{name}") and plain(value.value) not in ("", value.value):
        return f"write --{name}={plain(value.value)}"
    check = _CHECKS.get(name)
    return check(value.value) if check is not None and not value.value.startswith("=") else ""


def _together(script: ShellScript) -> Iterator[Problem]:
    given = {name: value for name, value in script.directives if not value.default}
    for name, others in _EXCLUSIVE.items():
        for other in others:
            if name in given and other in given:
                later = max(given[name], given[other], key=lambda value: value.span.line)
                what = f"sbatch refuses --{name} together with --{other}"
                yield problem(later.key or later, what, "keep one of the two", level="error", why=reasons.REFUSED)


def _is_number(text: str) -> bool:
    """Whether a value is meant as a number; `N`, `NODES` and `xx` may wait for one."""
    return re.match(r"[+-]?\.?\d", text) is not None or text.lower() in _NUMERALS


def _count(text: str) -> str:
    return "write a whole number above 0" if _is_number(text) and not _COUNT.fullmatch(text) else ""


def _core_count(text: str) -> str:
    return "" if _RANGE.fullmatch(text) else _count(text)  # a range, as older versions took it


def _nodes(text: str) -> str:
    match = _NODES.fullmatch(text)
    if match is not None and match[2] and "k" not in text.lower() and "m" not in text.lower():
        least, most = int(match[1]), int(match[2])
        return f"write {most}-{least}: the smaller number comes first" if most < least else ""
    taken = match is not None or _NODE_SIZES.fullmatch(text) or not _is_number(text)
    return "" if taken else "write a whole number, or two as in 2-4"


def _memory(text: str) -> str:
    if not _is_number(text) or _MEMORY.fullmatch(text):
        return ""
    whole = re.fullmatch(r"(\d+)([KMGT])iB", text, re.IGNORECASE)
    if whole is not None:
        return f"write {whole[1]}{whole[2].upper()}: its units are powers of 1024"
    return "write a whole number and K, M, G or T" + ("; 0 is all of the node" if text.isalpha() else "")


def _time(text: str) -> str:
    if text.isalpha():
        near = "" if text.lower() in _NO_LIMIT else nearest(text.lower(), _NO_LIMIT, 0.8)
        return f"write {near.upper()}" if near else ""
    if not text[0].isdigit() or _TIME.fullmatch(text) or UNITS.fullmatch(text):
        return ""  # units are a finding of their own
    days = re.fullmatch(r"(\d+):(\d+:\d+:\d+)", text)
    short = days is not None and int(days[1]) <= _LONGEST  # of more, hours may be meant
    return f"write {days[1]}-{days[2]}" if days is not None and short else "write days-hours:minutes:seconds"


def _moment(text: str) -> str:
    later = _LATER.fullmatch(text)
    if later is not None:
        return "" if _SPANS.fullmatch(later[2]) else "write seconds, minutes, hours, days or weeks in full"
    near = nearest(text.lower(), _MOMENTS, 0.8) if text.isalpha() and text.lower() not in _MOMENTS else ""
    return f"write {near}" if near else ""


def _signal(text: str) -> str:
    match = _SIGNAL.fullmatch(text)
    if match is None:
        timed = re.fullmatch(r"((?:[BR]:)?\w+@)(\d+)\s*([a-z]*).*", text, re.IGNORECASE)
        unit = _SECONDS.get(timed[3][:1].lower()) if timed is not None else None
        if timed is not None and unit is not None:
            wanted = int(timed[2]) * unit
            most = f": {_LATEST_SIGNAL} is the most" if wanted > _LATEST_SIGNAL else ""
            return f"write {timed[1]}{min(wanted, _LATEST_SIGNAL)}, in seconds{most}"
        return "write the time before the end in seconds, as in B:USR1@300" if timed else ""
    name, seconds = match[2].upper().removeprefix("SIG"), match[3]
    if seconds and int(seconds) > _LATEST_SIGNAL:
        return f"write at most {_LATEST_SIGNAL} seconds"
    if name.isdigit() or name in _SIGNALS or match[1].rpartition(":")[2].upper() + name in _SIGNALS:
        return ""
    near = nearest(name, sorted(_SIGNALS), 0.7)
    return f"did you mean {near}?" if near else "write a signal that exists, as in B:USR1@300"


def _exclusive(text: str) -> str:
    taken = text.lower() in ("user", "mcs", "topo", "exclusive")
    return "" if taken else "remove the option" if text in ("no", "0", "false") else "write --exclusive alone, or =user"


def _distribution(text: str) -> str:
    return "" if _DISTRIBUTION.fullmatch(text) else "write block, cyclic, plane=<size> or arbitrary, as in block:cyclic"


def _hint(text: str) -> str:
    wrong = [one for one in text.lower().split(",") if one not in _HINTS]
    near = nearest(wrong[0], _HINTS, 0.8) if wrong else ""
    return f"did you mean {near}?" if near else f"write one of {', '.join(_HINTS[:-1])}" if wrong else ""


def _array(text: str) -> str:
    if not text.lstrip("[")[:1].isdigit() or re.search(r"[A-Za-z_]", text.partition("%")[0]):
        return ""
    body = _ARRAY.fullmatch(text)
    if body is None:
        return "write task numbers as in 0-15:4 or 1,3,5-7"
    for part in filter(None, body[1].split(",")):
        tasks = _TASKS.fullmatch(part)
        if tasks is None or tasks[3] == "0":
            return "write task numbers as in 0-15:4 or 1,3,5-7"
        if tasks[2] and int(tasks[2]) < int(tasks[1]):
            return f"write {tasks[2]}-{tasks[1]}: the smaller number comes first"
    return ""


def _mail(text: str) -> str:
    """Words that it does not know are passed over, unless there is no other."""
    words = text.lower().split(",")
    if any(word in _MAILS or not word for word in words):
        return ""
    joined = re.split(r"[|;&/+]", text)
    if len(joined) > 1 and all(word.lower() in _MAILS for word in joined):
        return f"write {','.join(joined)}"
    near = nearest(words[0], _MAILS, 0.7)
    return f"did you mean {near.upper()}?" if near else "write BEGIN, END, FAIL or ALL, with commas between them"


def _gpus(text: str) -> str:
    parts = text.split(",")
    return "write a whole number of GPUs" if any(_GPUS.fullmatch(part) for part in parts) else ""


def _dependency(text: str) -> str:
    if not text[0].isalpha() or _DEPENDENCY.match(text):
        return ""
    kinds = ("afterany", "afterok", "afternotok", "aftercorr", "singleton")
    near = nearest(re.split(r"[:=,?]", text)[0].lower(), kinds, 0.8)
    return f"did you mean {near}?" if near else ""


def _open_mode(text: str) -> str:
    return "" if text[0].lower() in "at" else "write append or truncate"


def _yes_or_no(text: str) -> str:
    return "" if text.lower() in ("yes", "no") else "write yes or no"


_COUNTS = ("ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core")
_CHECKS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys((*_COUNTS, "cpus-per-task", "cpus-per-gpu", "mincpus"), _count),
    **dict.fromkeys(("cores-per-socket", "sockets-per-node", "threads-per-core"), _core_count),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu", "tmp"), _memory),
    **dict.fromkeys(("time", "time-min"), _time),
    **dict.fromkeys(("begin", "deadline"), _moment),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"), _gpus),
    "nodes": _nodes, "signal": _signal, "exclusive": _exclusive, "distribution": _distribution, "hint": _hint,
    "array": _array, "mail-type": _mail, "dependency": _dependency, "open-mode": _open_mode,
    "kill-on-invalid-dep": _yes_or_no,
}  # fmt: skip
