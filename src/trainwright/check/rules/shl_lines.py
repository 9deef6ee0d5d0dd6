"""SHL: commands of several lines that end earlier than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Edit
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.readers.shell_cuts import AFTER_BACKSLASH, cuts
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_PATTERN_OF_CASE = re.compile(r"\s*--[\w|*= -]+\)")
_WORDS_OF_A_PERSON = 4  # in a row without an option between them
_DASH = re.compile(r"[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212][-\u2010-\u2015\u2212]*(?P<name>[A-Za-z][\w-]*)(=.*)?")
_ANY_DASH = re.compile(r"\s-?[\u2010-\u2015\u2212]")
_STARTS = ("srun", "torchrun", "python", "python3", "accelerate", "deepspeed", "mpirun", "sbatch")


def typed_dashes(script: ShellScript) -> Iterator[Problem]:
    """`\u2013-lr 0.1`, as a word processor or a web page writes two hyphens."""
    for command in script.commands if _ANY_DASH.search(script.text) else ():
        for word in command.words[1:] if command.program in _STARTS else ():
            match = _DASH.fullmatch(word.value)
            if match is not None:
                hyphens = "--" if len(match["name"]) > 1 else "-"
                what = f"the dash before {match['name']} is no hyphen: {command.program} takes the word for an argument"
                yield problem(word, what, f"write {hyphens}{match['name']}", why=reasons.NO_HYPHEN)
                break


def cut_lines(file: File, script: ShellScript) -> Iterator[Problem]:
    """A blank or a comment after a backslash, or a line of comment inside a continued command."""
    if file.format not in ("sbatch", "shell"):
        return
    lines = file.lines
    ends = {command.span.end_line for command in script.commands}  # a line inside a text or an array ends no command
    for number, line in enumerate(lines, start=1):
        if number not in ends or line.lstrip().startswith("#"):
            continue
        following = lines[number] if number < len(lines) else ""
        blank = AFTER_BACKSLASH.search(line)
        if blank is not None and cuts(line, following):
            what = "blank" if blank.end() == len(line) else "comment"
            yield problem(
                Span(number, blank.start() + 1, number, len(line) + 1),
                f"a {what} after the backslash ends the command here; the next line runs as a command of its own",
                f"remove the {what}",
                edit=Edit(Span(number, blank.start() + 2, number, len(line) + 1), ""),
                why=reasons.BLANK_AFTER_BACKSLASH,
            )
        elif line.endswith("\\") and following.lstrip().startswith("#") and _option_after(lines, number):
            yield problem(
                Span(number + 1, len(following) - len(following.lstrip()) + 1, number + 1, len(following.rstrip()) + 1),
                "a comment inside a continued command ends it here; the options below run as a command of their own",
                "move the comment above the command",
                why=reasons.COMMENT_INSIDE,
            )


def _option_after(lines: list[str], number: int) -> bool:
    """Whether the lines after the comment continue with options, so that the comment was meant to be skipped."""
    for line in lines[number : number + 50]:
        if not line.lstrip().startswith("#"):
            return re.match(r"\s+-", line) is not None
    return False


def lost_lines(file: File, script: ShellScript) -> Iterator[Problem]:
    """A line of options that the line above does not continue, so that it runs as a command of its own."""
    lines = file.lines if file.format in ("sbatch", "shell") else []
    for command in script.commands:
        at = command.span.line
        if re.match(r"--[A-Za-z]", command.program) and 1 < at <= len(lines) and _is_lost(script, command, lines):
            remark = re.search(r"(?<=\s)#", lines[at - 2])
            yield problem(
                command.words[0],
                f"{command.program} runs as a command of its own: the line above has no backslash at its end",
                f"end line {at - 1} with a backslash" + (", and move its comment above" if remark else ""),
                why=reasons.LOST_LINE,
            )


def _is_lost(script: ShellScript, command: Command, lines: list[str]) -> bool:
    at = command.span.line
    above, line = lines[at - 2].rstrip(), lines[at - 1]
    if _PATTERN_OF_CASE.match(line) or AFTER_BACKSLASH.search(lines[at - 2]) or not line.lstrip().startswith("--"):
        return False
    if above.endswith(("\\", ";", "&", "|", "(", "{")) or "{%" in above or "{{" in line:
        return False
    if above.endswith(":") or command.program.endswith(":") or _is_prose(command):
        return False  # words of a person, whose comment sign is lost
    return at - 1 in script.derived(_last_lines)


def _last_lines(script: ShellScript) -> set[int]:
    """The lines where commands end that have arguments."""
    return {command.span.end_line for command in script.commands if len(command.words) > 1}


def _is_prose(command: Command) -> bool:
    row = 0
    for word in command.words[1:]:
        row = row + 1 if re.fullmatch(r"[a-z]+[,.]?", word.value) else 0
        if row >= _WORDS_OF_A_PERSON:
            return True
    return False
