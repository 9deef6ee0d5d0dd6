"""SHL: commands of several lines that end earlier than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile

from trainwright.check import reasons
from trainwright.check.finding import Edit
from trainwright.check.launches.launchers import STARTERS
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.readers.shell_cuts import AFTER_BACKSLASH, cuts
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_PATTERN_OF_CASE = re.compile(r"\s*--[\w|*= -]+\)")
_WORDS_OF_A_PERSON = 4  # in a row without an option between them
_DASH = re.compile(r"[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212][-\u2010-\u2015\u2212]*(?P<name>[A-Za-z][\w-]*)(=.*)?")
_ANY_DASH = re.compile(r"\s-?[\u2010-\u2015\u2212]")
_STARTS = (*STARTERS, "sbatch")


def typed_dashes(script: ShellScript) -> Iterator[Problem]:
    """`\u2013-lr 0.1`, as a word processor or a web page writes two hyphens."""
    for command in script.commands if _ANY_DASH.search(script.text) else ():
        words = command.words[1:] if command.program in _STARTS else []
        options = [(word, match["name"]) for word in words if (match := _DASH.fullmatch(word.value)) is not None]
        if options:
            word, name = options[0]
            what = f"the dash before {name} is no hyphen: {command.program} takes the word for an argument"
            meant = dict.fromkeys(f"{'--' if len(one) > 1 else '-'}{one}" for _, one in options)
            yield problem(word, what, f"write {', '.join(meant)}", why=reasons.NO_HYPHEN)


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
                "remove the blank" if what == "blank" else "remove the comment and the blanks before it",
                edit=Edit(Span(number, blank.start() + 2, number, len(line) + 1), ""),
                why=reasons.BLANK_AFTER_BACKSLASH,
            )
        elif line.endswith("\\") and following.lstrip().startswith("#") and _option_after(lines, number):
            last = _last_comment(lines, number)
            several = f"s of lines {number + 1} to {last}" if last > number + 1 else ""
            yield problem(
                Span(number + 1, len(following) - len(following.lstrip()) + 1, number + 1, len(following.rstrip()) + 1),
                "a comment inside a continued command ends it here; the options below run as a command of their own",
                f"move the comment{several} above the command",
                why=reasons.COMMENT_INSIDE,
            )


def _option_after(lines: list[str], number: int) -> bool:
    """Whether the lines after the comment continue with options, so that the comment was meant to be skipped."""
    last = _last_comment(lines, number)
    return last < len(lines) and re.match(r"\s+-", lines[last]) is not None


def _last_comment(lines: list[str], number: int) -> int:
    """The last of the lines of comment behind a line."""
    return number + len(list(takewhile(lambda line: line.lstrip().startswith("#"), lines[number:])))


def lost_lines(file: File, script: ShellScript) -> Iterator[Problem]:
    """A line of options that the line above does not continue, so that it runs as a command of its own."""
    lines = file.lines if file.format in ("sbatch", "shell") else []
    lost = [
        command
        for command in script.commands
        if re.match(r"--[A-Za-z]", command.program)
        and 1 < command.span.line <= len(lines)
        and _is_lost(script, command, lines)
    ]
    while lost:
        first = lost.pop(0)
        ends = [first.span.line - 1]
        last = first
        while lost and lost[0].span.line == last.span.end_line + 1:  # of the same command as it was meant
            last = lost.pop(0)
            ends.append(last.span.line - 1)
        yield problem(
            first.words[0],
            f"{first.program} runs as a command of its own: the line above has no backslash at its end",
            _before_pipe(ends) if ends[0] in script.derived(_ends_of_pipes) else _joined(ends, lines),
            why=reasons.LOST_LINE,
        )


def _ends_of_pipes(script: ShellScript) -> set[int]:
    return {after.span.end_line for before, after in pairwise(script.commands) if before.piped}


def _before_pipe(ends: list[int]) -> str:
    """A backslash would give the options to the program behind the `|`, such as tee."""
    those = f"line {ends[0] + 1}" if len(ends) == 1 else f"lines {ends[0] + 1} to {ends[-1] + 1}"
    return f"move the options of {those} to line {ends[0]}, before the `|`"


def _joined(ends: list[int], lines: list[str]) -> str:
    """A comment behind the backslash would end the command, as one on a line of its own would."""
    remarks = [end for end in ends if re.search(r"(?<=\s)#", lines[end - 1])]
    several = f"s {', '.join(map(str, ends[:-1]))} and {ends[-1]}" if len(ends) > 1 else f" {ends[0]}"
    slashes = [end for end in ends if lines[end - 1].rstrip().endswith(" /")]
    if slashes:
        return f"end line{several} with a backslash, where there is a `/`"
    glued = any(lines[end][:1].strip() and not lines[end - 1].endswith((" ", "\t")) for end in ends)
    blank = "a blank and " if glued else ""  # else the last word of the line would go on in the next one
    comments = f", and move {'the comments there' if len(ends) > 1 else 'its comment'} above the command"
    return f"end line{several} with {blank}a backslash" + (comments if remarks else "")


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
