"""SHL: scripts that bash refuses to read. Only those that our own reader doubts are given to `bash -n`, which reads a
script and runs none of it; what it accepts is not reported, and without bash nothing is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import PurePath

from trainwright.check.model import File, ShellScript
from trainwright.check.readers.ours import merge_conflict
from trainwright.check.readers.shell_quotes import unpaired_line
from trainwright.check.readers.shell_syntax import may_be_refused, open_block
from trainwright.check.readers.templates import is_template, without_suffix
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Span

_FORMATS = ("sbatch", "shell")
_SECONDS = 10.0
_FOR_CLOUD_INIT = re.compile(r"\s*(Content-Type|MIME-Version):|\s*#cloud-config\b", re.IGNORECASE)  # has parts, or YAML
_SHEBANG = re.compile(r"#!.*\b(ba|da|a)?sh\b")
_NAMES = (".sh", ".bash", ".sbatch", ".slurm", ".job")
_OTHER_SHELL = re.compile(r"\b(z|t?c|k|mk|fi)sh\b|\bsetenv\b")
# Values that a person or another program fills in: `<bucket>`, `<%= size %>`, `%(size)s`, `<<SIZE>>`.
_TO_BE_FILLED = re.compile(r"<[A-Za-z_][^<>\n=()&|;$]*>|<%|%\(\w+\)[sd]")
_TEXT = re.compile(r"#.*|'[^'\n]*'|\"[^\"\n]*\"")  # comments and texts, such as how to call the script
_ANSWER = re.compile(r"^bash: (?:line (\d+): )?(?!line|warning)(.*)", re.MULTILINE)
_BEFORE_ARRAY = re.compile(r"\s*[A-Za-z_]\w*[ \t]+=[ \t]*\(")  # SHL001 says what is wrong with it
_CLOSES = re.compile(r"unexpected (end of file|token `(fi|done|esac|[)}]|;;)')")
_FOLLOWS = {"if": "then", "elif": "then", "while": "do", "until": "do"}
_OPENING = re.compile(r"\s*(?P<word>if|elif|while|until|for|select)\s")
# What people write in one line, what bash accepts in its place, and how to say so.
_SLIPS = (
    (re.compile(r"\b(do|then|else)(\s*);(?=\s|$)"), r"\1\2", "remove the `;`: none follows `do`, `then` or `else`"),
    (re.compile(r"&(\s*);(?=\s|$)"), r"&\1", "remove the `;` behind the `&`"),
    (re.compile(r"^(\s*(?:if|elif|while|until))(?=\[|!)"), r"\1 ", "write a blank before the bracket"),
    (re.compile(r"(\[\[[^\]]*[^\]\s])\s*\](?!\])"), r"\1 ]]", "close `[[` with ` ]]`"),
    (re.compile(r"([^;{\s])\s+\}(\s*)$"), r"\1; }\2", "write `;` before the `}`"),
    (re.compile(r"([^;\s])\s+(fi|done)(\s*)$"), r"\1; \2\3", "write `;` before the word that closes the block"),
    (re.compile(r"(\$\{\w+)(?=[\s\"/]|$)"), r"\1}", "close `${` with `}`"),
    (re.compile(r"(\$\([^()\"]*)(?=\")"), r"\1)", "close `$(` with `)`"),
    (
        re.compile(r"^(\s*((export|declare|local|readonly|typeset)\s+(-\w+\s+)*)?[A-Za-z_]\w*)\s*=\s+\("),
        r"\1=(",
        "remove the blanks beside the `=`",
    ),
    (
        re.compile(
            r"^(?!\s*(?:if|elif|for|while|until|case|select|function|def|import)\b)(\s*[\w./-]+\s(?:[^'\"()]*\s)?)"
            r"([^\s'\"()]*\([^()'\"]*\)[^\s'\"()]*)(?=\s|$)"
        ),
        r'\1"\2"',
        "put quotes around the parentheses and what is between them",
    ),
)
_GOES_ON = re.compile(r"\s*(\|\|?|&&)(?!\|)")
_TRIALS = 8  # corrections that bash is asked about
_CLOSED_BY = {
    "if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}", "(": ")",
}  # fmt: skip
_PAIR = (
    "pair the quotes of the line: close the one that is open, or escape one that is meant as text (between single "
    "quotes as '\\'')"
)
_LAST = ("exit", "return", "exec")
_REPLACES = re.compile(r"\s*['\"]*exec['\"]*[ \t]+(?![<>&]|\d+[<>])")  # `exec > log` only opens a file
_OLDEST = 4  # version of bash: 3.2 of macOS refuses what all others accept


@rule("SHL002", "error")
def shell_scripts_can_be_read(file: File) -> Iterator[Problem]:
    """A shell or sbatch script must be one that bash can read to its end.

    A quote that is not closed, an `if` without `then` or `fi`, a loop without `done`, a `case` without `esac`, a `)` or
    `}` too many. The script is given to `bash -n`, which reads it and runs nothing; the finding has bash's words and
    its line, which may stand below the mistake: of a missing `fi` it is the last line, of a quote the one from which on
    the quotes do not pair. What stands below an `exit` at
    the end of a script, templates, and scripts for other shells are left out.

    Why: bash runs the commands above the line and ends there with status 2: a job of 8 nodes waits in the queue, is
    started, and ends in its first second, or after the training, before the lines that keep its results.

    Fix: correct the line, or what stays open above it; `bash -n script.sh` shows whether it is.

    Source: the bash manual, "The Set Builtin" (-n).

    When to ignore: the file is a piece of a script, and another program adds the rest.
    """
    if file.format in _FORMATS and _is_for_bash(file) and may_be_refused(_unix(file.text)):
        yield from _refused(file)


def _unix(text: str) -> str:
    """With line ends of Unix: those of Windows are SLU006's."""
    return text.replace("\r\n", "\n").removeprefix("\ufeff")


def _is_for_bash(file: File) -> bool:
    name = PurePath(file.path).name
    if without_suffix(name) != name or _FOR_CLOUD_INIT.match(file.text):
        return False
    if file.text.lstrip("\ufeff").startswith("#!"):
        return _SHEBANG.match(file.text.lstrip("\ufeff")) is not None
    return name.lower().endswith(_NAMES) and _OTHER_SHELL.search(file.text) is None


def _refused(file: File) -> Iterator[Problem]:
    text = _unix(file.text)
    if is_template(text) or _TO_BE_FILLED.search(_TEXT.sub("", text)) or merge_conflict(text, file.path) is not None:
        return
    answer = _ANSWER.search(_bash_says(text))
    if answer is None:
        return
    lines = text.rstrip().split("\n")
    number, what = min(int(answer[1] or len(lines)), len(lines)), answer[2].strip()
    unpaired = unpaired_line(lines, what, _bash_says)
    small = _slip(lines, unpaired) if unpaired else ""
    if small:
        number = unpaired
    elif unpaired:
        number, what = unpaired, f"a quote stays open from this line on ({what})"
    line = lines[number - 1]
    if not _BEFORE_ARRAY.match(line) and not any(_ends(script, text, number) for script in file.scripts):
        span = Span(number, len(line) - len(line.lstrip()) + 1, number, len(line.rstrip()) + 1)
        yield problem(
            span, f"bash refuses the script: {what}", small or (_PAIR if unpaired else _fix(text, number, what))
        )


def _fix(text: str, number: int, what: str) -> str:
    """What bash accepts in place of the text; without such a correction a general word."""
    lines = text.split("\n")
    empty = _empty_branch(lines, number)
    if empty and _accepted([*lines[:empty], ":", *lines[empty:]]):
        return f"write a command, such as `:`, behind the `{_before_comment(lines[empty - 1])}` of line {empty}"
    if number > 1 and _GOES_ON.match(lines[number - 1]):
        joined = f"{lines[number - 2].rstrip()} \\"
        if _accepted([*lines[: number - 2], joined, *lines[number - 1 :]]):
            return f"end line {number - 1} with a backslash"
    block = open_block(text) if _CLOSES.search(what) else None
    above = () if block is None else range(block[1], number) if block[0] == "{" else (block[1],)
    small = _separated(lines, number) or _slip(lines, number, *above)
    if small:
        return small
    if block is not None and block[2] >= number:
        between = "\n".join(lines[block[1] - 1 : number])
        word, last = _FOLLOWS.get(block[0], ""), _CLOSED_BY.get(block[0], "")
        braces = lines[block[1] - 1].rstrip().endswith("{")  # as in C, which needs another `fi`, too
        if word and not braces and not re.search(rf"\b{word}\b", between):
            return f"write `; {word}` behind the condition of the `{block[0]}` of line {block[1]}"
        if any(_accepted([*lines[:at], last, *lines[at:]]) for at in (number - 1, number)):
            return f"close the `{block[0]}` of line {block[1]}, or remove what is too many"
    if _CLOSES.search(what) and lines[number - 1].strip() in _CLOSED_BY.values() and _accepted(_without(lines, number)):
        return "remove it: what it closes is closed above"
    return "correct what stays open or is too many, on this line or above it, until `bash -n` accepts the script"


def _separated(lines: list[str], number: int) -> str:
    """A `then` or `do` that is missing, or that stands behind its condition as one more word."""
    tried = 0
    for at in range(number, 0, -1):
        opening = _OPENING.match(lines[at - 1])
        if opening is None or tried == _TRIALS:
            continue
        word = _FOLLOWS.get(opening["word"], "do")
        code = re.split(r"\s+#", lines[at - 1], maxsplit=1)[0].rstrip()
        behind = code.removesuffix(word)
        if behind != code and not behind.rstrip().endswith(";"):
            changed, fix = f"{behind.rstrip()}; {word}", f"write `;` before the `{word}` of line {at}"
        elif behind == code and not re.search(rf"\b{word}\b", code) and not _begins_with(word, lines[at:]):
            added = word if code.endswith(";") else f"; {word}"
            end = "at the end" if code == lines[at - 1].rstrip() else "before the comment"
            changed, fix = f"{code} {added}", f"write `{added}` {end} of line {at}"
        else:
            continue
        tried += 1
        if _accepted([*lines[: at - 1], changed, *lines[at:]]):
            return fix
    return ""


def _begins_with(word: str, lines: list[str]) -> bool:
    """Whether the next line of code begins with a word: `then` on a line of its own."""
    following = next((line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")), [""])
    return following[0].rstrip(";") == word


def _slip(lines: list[str], *numbers: int) -> str:
    """A character that is missing or too many in the line that bash refuses, or above where a function is open."""
    for at, (pattern, instead, fix) in product(numbers, _SLIPS):
        changed, count = pattern.subn(instead, lines[at - 1])
        if count == 1 and _accepted([*lines[: at - 1], changed, *lines[at:]]):
            return fix if at == numbers[0] else f"{fix} of line {at}"
    return ""


def _empty_branch(lines: list[str], number: int) -> int:
    """The line above that ends with `then`, `else`, `do` or `{`, behind which only comments stand, or 0."""
    for at in range(number - 1, 0, -1):
        line = lines[at - 1].strip()
        if line and not line.startswith("#"):
            return at if _before_comment(line) in ("then", "else", "do", "{") else 0
    return 0


def _before_comment(line: str) -> str:
    """The last word of a line without its comment."""
    return (re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split() or [""])[-1]


def _without(lines: list[str], number: int) -> list[str]:
    return [*lines[: number - 1], *lines[number:]]


def _accepted(lines: list[str]) -> bool:
    return not _ANSWER.search(_bash_says("\n".join(lines)))


def _ends(script: ShellScript, text: str, number: int) -> bool:
    """Whether the script ends above a line in any case: bash reads a script command by command, and what stands below
    may be an archive or text for another program."""
    lines = text.split("\n")
    ends = [
        command.span.end_line
        for command in script.commands
        if command.program in _LAST
        and not (command.conditional or command.branch or command.subshell or command.piped)
        and command.span.end_line < number
        and (command.program != "exec" or _REPLACES.match(lines[command.span.line - 1]))
    ]
    return bool(ends) and not _bash_says("\n".join(lines[: ends[0]]) + "\n")


def _bash_says(text: str) -> str:
    """The messages of `bash -n`; nothing where it accepts the text without a warning, and without bash."""
    bash = _bash()
    if not bash:
        return ""
    extended = ["-O", "extglob"] if "extglob" in text or not text.startswith("#!") else []
    try:
        done = subprocess.run(
            ["bash", *extended, "-n"],
            executable=bash,
            input=text.encode("utf-8", errors="replace"),
            capture_output=True,
            timeout=_SECONDS,
            env={"LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr.decode("utf-8", errors="replace")


@cache
def _bash() -> str:
    """The bash of this machine, where it is not too old."""
    bash = shutil.which("bash") if os.name == "posix" else None
    if not bash:
        return ""
    command = [bash, "-c", "echo $BASH_VERSINFO"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, env={}, text=True, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    version = done.stdout.strip()
    return bash if version.isdecimal() and int(version) >= _OLDEST else ""
