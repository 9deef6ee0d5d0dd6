"""SHL: shell mistakes that silently change what a job does."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import reasons
from trainwright.check.finding import Edit
from trainwright.check.job_sizes import once
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.readers.shell_words import AFTER_BACKSLASH, cuts
from trainwright.check.readers.templates import STAND_IN
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.shl_assignments import blank_after_equals, blank_for_equals, spaced
from trainwright.check.rules.shl_directives import LARGEST, READ_BESIDE, misread_directives
from trainwright.spec.source import Span

_COMPARISONS = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
_VARIABLE = re.compile(r"^\$\{?([A-Za-z_]\w*)\}?$")
# Names that a shell, a login or a scheduler sets.
_GIVEN = re.compile(
    r"^(SLURM|PBS|LSB|OMPI|PMI|AWS|CUDA|NCCL|NVIDIA|TORCH|BASH|KUBERNETES|JOB|HOSTNAME|RANDOM|SECONDS|EUID|UID|PPID|"
    r"OPT|RANK|WORLD_SIZE|LOCAL_RANK|MASTER|COLUMNS|LINES|PIPESTATUS|FUNCNAME|SHLVL|REPLY|HOME|USER|PATH|PWD|TMPDIR)"
)
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")
_REQUIREMENT = re.compile(r"[A-Za-z][\w.-]*(\[[\w,]+\])?==\d")
# A requirement that the shell takes apart: `torch>=2.4`, `x[a]<2`, `y>=1,<2`.
_UNQUOTED = re.compile(r"(?<=\s)[A-Za-z][\w.-]*(\[[\w,.-]+\])?[<>]=?[\d.*]+(,[<>=!~]=?[\d.*]+)*(?=\s|$)")
_DIGITS = re.compile(r"\d+")
_MESSAGES = ("echo", "printf", "die", "log", "error", "fatal", "warn", "usage")
_FROM_OUTSIDE = 3  # names that nothing sets: the environment is meant to
_SHORT_NAME, _LONG_NAME, _RESEMBLES = 4, 5, 0.85


@rule("SHL001", "warning")
def shell_does_what_it_says(file: File) -> Iterator[Problem]:
    """Shell mistakes that change a job without failing it.

    A test of a variable that nothing sets (`[ $NODES -gt 4 ]`; Slurm's name is SLURM_JOB_NUM_NODES); an extra brace
    (`${DIR}}`); `export NAME /path` without `=`; `NAME = value` and `NAME= "value"` with blanks; a line of options that
    the line above does not continue; a backslash followed by a blank, or a comment inside a continued command: both end
    the command there; an #SBATCH line after the first command, which Slurm ignores; a log directory that does not
    exist, without which the job fails and leaves no log (a note where the script itself does not make it: it may exist
    where the job is submitted); an unquoted `pip install x>=1.2`, which the shell reads as a redirection into a file
    named `=1.2`; a requirement (`mlflow==2.13`) without `pip install`; a variable that is never set and one letter from
    one that is.

    Why: the job runs with other options or versions than were written: `pip install torch>=2.4` without quotes
    installs any version, and writes a file named `=2.4`.

    Fix: see the finding.

    Source: Slurm's sbatch manual; the bash manual; launchers of awsome-distributed-ai.

    When to ignore: the variable is set by the environment that calls the script, or the directory exists on the
    cluster.
    """
    for script in file.scripts:
        yield from once([*_redirects(file, script), *_requirements(script), *_misspelled(file, script)])
        if script.kind != "dockerfile":
            lines = [
                *_continuations(file, script),
                *_lost_lines(file, script),
                *blank_for_equals(file),
                *blank_after_equals(file),
                *spaced(script),
            ]
            yield from once([*_tests(script), *_braces(script), *lines, *misread_directives(file, script)])


def _redirects(file: File, script: ShellScript) -> Iterator[Problem]:
    for span, text, more in script.version_redirects[:1]:
        more += sum(1 + others for _, _, others in script.version_redirects[1:])
        what = f"writes to a file named {text[1:]!r}" if text.startswith(">") else f"reads a file named {text[1:]!r}"
        others = f" (and {more} more in this file)" if more else ""
        yield problem(
            span,
            f"without quotes the shell {what}, and pip sees no version{others}",
            "quote the requirement",
            edit=_quoted(file, [place.line for place, _, _ in script.version_redirects]),
        )


def _quoted(file: File, numbers: list[int]) -> Edit | None:
    """The edit that quotes the requirements of these lines; none where a line has quotes of its own."""
    lines = file.text.split("\n")
    first, last = min(numbers), max(numbers)
    if last > len(lines) or any(mark in lines[number - 1] for number in numbers for mark in "'\"`"):
        return None
    changed = [
        _UNQUOTED.sub(r"'\g<0>'", line) if number in numbers else line
        for number, line in enumerate(lines[first - 1 : last], start=first)
    ]
    return Edit(Span(first, 1, last, len(lines[last - 1]) + 1), "\n".join(changed))


def _requirements(script: ShellScript) -> Iterator[Problem]:
    for command in script.commands:
        if command.words and _REQUIREMENT.match(command.words[0].value):
            yield problem(
                command.words[0],
                f"{command.words[0].value} is a requirement of pip, and is run as a command",
                "write pip install before it",
            )
    for variable in script.assignments:  # the shell takes `torch==2.1` for `torch` set to `=2.1`
        if variable.name.upper().endswith("VERSION"):
            continue  # of a build argument: `torch${TORCH_VERSION}`
        if re.match(r"=\d+\.\d", variable.value.value):
            yield problem(
                variable.span,
                f"{variable.name}={variable.value.value} is a requirement of pip, and sets a variable here",
                "write pip install before it",
            )


def _misspelled(file: File, script: ShellScript) -> Iterator[Problem]:
    """Variables that nothing sets and that resemble one that is set."""
    if script.sources_others:
        return
    own = sorted(name for name in script.assigned if len(name) >= _LONG_NAME)
    for command in script.commands:
        for word in command.words:
            for name in _NAME.findall(word.value) if not word.known else ():
                if name in script.assigned or _GIVEN.match(name):
                    continue
                near = [other for other in script.assigned if _letters_swapped(name, other)]
                near = near or (
                    difflib.get_close_matches(name, own, n=1, cutoff=_RESEMBLES) if len(name) >= _LONG_NAME else []
                )
                meant = near and _one_letter_apart(name, near[0]) and command.program not in _MESSAGES
                if meant and not _set_by_name(script, name) and not _set_beside(file.path, name):
                    certain = _is_launcher(script) and not re.search(rf"\b{name}(=|\+=)", file.text)
                    what, why = f"${name} is never set; ${near[0]} is", reasons.MISSPELT_VARIABLE
                    yield problem(word, what, f"write ${near[0]}", level=None if certain else "info", why=why)


def _set_by_name(script: ShellScript, name: str) -> bool:
    """Whether a function may set the variable: its bare name is an argument somewhere (`words_of_line cur cword`)."""
    return any(word.value == name for command in script.commands for word in command.words[1:])


def _letters_swapped(one: str, other: str) -> bool:
    """`haed` for `head`: two neighbouring letters in the other order, in a name of at least four."""
    if len(one) != len(other) or len(one) < _SHORT_NAME or sorted(one) != sorted(other):
        return False
    differing = [index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    return len(differing) == 2 and differing[1] == differing[0] + 1 and one.isalpha()


def _one_letter_apart(one: str, other: str) -> bool:
    """A letter more, less, other or swapped; a different number at the end is another variable, and so is an
    underscore before or behind the name."""
    if one.strip("_") == other.strip("_"):
        return False
    if _DIGITS.sub("", one) == _DIGITS.sub("", other) or abs(len(one) - len(other)) > 1:
        return False
    if _letters_swapped(one, other):
        return True
    short, long = sorted((one, other), key=len)
    same = next((i for i, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    return long[same + 1 :] == (short[same + 1 :] if len(short) == len(long) else short[same:])


def _tests(script: ShellScript) -> Iterator[Problem]:
    if script.sources_others or not _is_launcher(script) or len(_unset(script)) > _FROM_OUTSIDE:
        return
    comments = " ".join(script.comments.values())
    for command in script.commands:
        if not _is_test(command):
            continue
        for before, word, after in _neighbours(command):
            match = _VARIABLE.match(word.value)
            compared = (before in _COMPARISONS or after in _COMPARISONS) and not _with_zero(command)
            if match is None or word.known or not compared or STAND_IN.match(word.value):
                continue
            name = match[1]
            if name in script.assigned or _GIVEN.match(name) or re.search(rf"\b{name}\b", comments):
                continue
            hint = "Slurm calls it SLURM_JOB_NUM_NODES" if "NODES" in name else "set it, or give it a default"
            what = f"${name} is compared, but nothing in the script sets it"
            yield problem(word, what, hint, level="info")  # its environment may


def _unset(script: ShellScript) -> set[str]:
    words = (word for command in script.commands for word in command.words if not word.known)
    names = {name for word in words for name in _NAME.findall(word.value)}
    return {name for name in names if name not in script.assigned and not _GIVEN.match(name)}


def _is_launcher(script: ShellScript) -> bool:
    """Other scripts may get values from their environment; a launcher's sizes come from the scheduler."""
    return script.kind == "sbatch" or any(
        c.program in ("srun", "torchrun", "sbatch", "mpirun") for c in script.commands
    )


def _is_test(command: Command) -> bool:
    return bool(command.words) and (command.program in ("[", "[[", "test") or command.words[-1].value == "]]")


def _with_zero(command: Command) -> bool:
    """`[[ $DEBUG -eq 0 ]]`: inside double brackets an unset variable is 0, which is meant."""
    return command.words[-1].value == "]]" and any(word.value == "0" for word in command.words)


def _neighbours(command: Command) -> Iterator[tuple[str, Value[str], str]]:
    texts = [word.value for word in command.words]
    for index, word in enumerate(command.words):
        yield texts[index - 1] if index else "", word, texts[index + 1] if index + 1 < len(texts) else ""


def _braces(script: ShellScript) -> Iterator[Problem]:
    for span in script.stray_braces:
        yield problem(span, "extra closing brace: it becomes part of the value", "remove it", edit=Edit(span, ""))


def _continuations(file: File, script: ShellScript) -> Iterator[Problem]:
    if file.format not in ("sbatch", "shell"):
        return
    lines = file.text.split("\n")
    commands = [(c.span.line, c.span.end_line) for c in script.commands]
    covered = {line for first, last in commands for line in range(first, min(last, first + 2000) + 1)}
    for number, line in enumerate(lines, start=1):
        if number not in covered or line.lstrip().startswith("#"):
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
            )


def _lost_lines(file: File, script: ShellScript) -> Iterator[Problem]:
    """A line of options that the line above does not continue, so that it runs as a command of its own."""
    lines = file.text.split("\n") if file.format in ("sbatch", "shell") else []
    for command in script.commands:
        at = command.span.line
        if not re.match(r"--[A-Za-z]", command.program) or not 1 < at <= len(lines):
            continue
        above, pattern = lines[at - 2].rstrip(), re.match(r"\s*--[\w|*= -]+\)", lines[at - 1])  # of a case
        begun = any(c.span.end_line == at - 1 and len(c.words) > 1 for c in script.commands)
        if pattern is not None or not begun or above.endswith(("\\", ";;")) or AFTER_BACKSLASH.search(lines[at - 2]):
            continue
        if not lines[at - 1].lstrip().startswith("--") or "{%" in above or "{{" in lines[at - 1]:
            continue
        if above.endswith(":") or command.program.endswith(":"):
            continue  # words of a person, whose comment sign is lost
        yield problem(
            command.words[0],
            f"{command.program} runs as a command of its own: the line above has no backslash at its end",
            f"end line {at - 1} with a backslash",
        )


def _option_after(lines: list[str], number: int) -> bool:
    """Whether the lines after the comment continue with options, so that the comment was meant to be skipped."""
    for line in lines[number : number + 50]:
        if not line.lstrip().startswith("#"):
            return re.match(r"\s+-", line) is not None
    return False


def _set_beside(path: str, name: str) -> bool:
    """Whether a file of settings in the directory sets a variable (`env.conf`, which the user sources)."""
    if path == "<stdin>":
        return False
    places = [place for pattern in ("*.conf", "*.env", ".env", "env*") for place in Path(path).parent.glob(pattern)]
    small = [place for place in places[:READ_BESIDE] if place.is_file() and place.stat().st_size < LARGEST]
    return any(re.search(rf"^\s*(export )?{name}=", p.read_text(errors="replace"), re.MULTILINE) for p in small)
