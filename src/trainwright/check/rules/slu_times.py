"""SLU: how long a job may run: what Slurm reads, and what a comment beside it says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import ShellScript, Value
from trainwright.check.registry import Problem, problem

_HOURS_OF_A_DAY = 24
_DAYS_IN_HOURS = (36, 48, 72, 96)
_UNITS = {"d": 1440, "h": 60, "m": 1}
_NAMES = {1440: "day", 60: "hour", 1: "minute"}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
_DURATION = re.compile(
    r"(?<![\w.:-])(\d+(?:[.,]\d+)?)[\s-]*(d|days?|h|hrs?|hours?|m|mins?|minutes?|tage?n?|std|stunden?|minuten|jours?|heures?)\b",
    re.IGNORECASE,
)
# What a partition allows, not what the job asks for: `1 day max for short`.
_OF_A_PARTITION = re.compile(r"\b(max(imum|imal)?|allow(s|ed)|default|partition|queue)\b", re.IGNORECASE)
_OTHER_LANGUAGES = {"t": "d", "j": "d", "s": "h"}  # Tage, jours; Stunden


def short_times(script: ShellScript) -> Iterator[Problem]:
    """`--time=48:00` below "48 h", and on several nodes ten minutes that look like ten hours: both notes."""
    given = dict(script.directives)
    time, nodes = given.get("time"), given.get("nodes")
    if time is None or not time.known:
        return
    contradicted = _said_otherwise(script, time)
    if contradicted is not None:
        yield contradicted
        return
    match = re.fullmatch(r"0?(\d{1,2}):00", time.value)
    if match is None or not (0 < int(match[1]) <= _HOURS_OF_A_DAY or int(match[1]) in _DAYS_IN_HOURS):
        return
    if nodes is not None and nodes.value.isdecimal() and int(nodes.value) > 1:
        what, fix = f"{time.value} is {int(match[1])} minutes", f"write {time.value}:00 for hours"
        yield problem(time, what, fix, level="info", why=reasons.MINUTES)


def _said_otherwise(script: ShellScript, time: Value[str]) -> Problem | None:
    """The same number with another unit in the comment on the line or above it."""
    limit, first, unit = _minutes(time.value)
    comment = _comment(script, time)
    stated = [(float(n.replace(",", ".")), _unit(name)) for n, name in _DURATION.findall(comment)]
    if unit == 0 or _OF_A_PARTITION.search(comment) or any(number * of == limit for number, of in stated):
        return None
    meant = next((of for number, of in stated if number == first and of != unit), None)
    if meant is None or first == 0:
        return None
    return problem(
        time,
        f"{time.value} is {_counted(first, unit)}, and the comment says {_counted(first, meant)}",
        f"write {_written(first, meant)}",
        level="info",  # the comment may speak of something else
        why=reasons.MINUTES,
    )


def minutes(text: str) -> float:
    """A time of Slurm in minutes; 0 of an unknown form, as of UNLIMITED."""
    return _minutes(text)[0]


def _minutes(text: str) -> tuple[float, int, int]:
    """A time of Slurm in minutes, its first number that is not 0, and the minutes of its unit; 0 of an unknown form."""
    match = _TIME.fullmatch(text)
    if match is None:
        return 0, 0, 0
    rest = [int(one) for one in match["rest"].split(":")]
    units = [60, 1, 1 / 60] if match["days"] or len(rest) == 3 else [1, 1 / 60]
    parts = [(int(match["days"] or 0), 1440), *zip(rest, units, strict=False)]
    first = next(((number, int(unit)) for number, unit in parts if number and unit >= 1), (0, 0))
    return sum(number * unit for number, unit in parts), *first


def _unit(name: str) -> int:
    letter = name[0].lower()
    return _UNITS[_OTHER_LANGUAGES.get(letter, letter)]


def _counted(number: int, unit: int) -> str:
    return f"{number} {_NAMES[unit]}{'s' if number != 1 else ''}"


def _written(number: int, unit: int) -> str:
    return f"{number}-00:00:00" if unit == 1440 else f"{number}:00:00" if unit == 60 else f"{number}:00"


def with_unit(number: str, unit: str) -> str:
    """What to write for `1 day` and `12h`; empty where the word is no unit of time."""
    stated = _DURATION.fullmatch(f"{number}{unit}") if number.isdecimal() and int(number) else None
    return f"write {_written(int(number), _unit(stated[2]))}" if stated is not None else ""


def _comment(script: ShellScript, time: Value[str]) -> str:
    """The comment behind the directive, else the one on the line above."""
    line, above = (script.lines[number] if number >= 0 else "" for number in (time.span.line - 1, time.span.line - 2))
    behind = line[1:].partition("#")[2]
    alone = above.startswith("#") and not above.startswith(("#SBATCH", "##", "#!"))
    return behind or (above if alone else "")
