"""IMG: instructions of a Dockerfile that do something else than is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.check import reasons
from trainwright.check.domain import is_about_training
from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.img_compiler import missing_compiler
from trainwright.check.rules.img_stage_uses import dropped_commands, lost_arguments, through_shell, unknown_stages
from trainwright.check.rules.img_stages import Instruction, Stage, stages

_EXPORT = re.compile(r"export\s+([A-Za-z_]\w*)=[^;&|]*")
_CD = re.compile(r"cd\s+([^\s;&|]+)")
_SOURCE = re.compile(r"(?:^|&&)\s*source\s")
_ACTIVATES = re.compile(r"source\s+(\S+)/activate")
_NOT_SIMPLE = re.compile(r"[;|(`'\"]|\|\||\bif\b|<<")
# Programs that read a file of the current directory.
_RELATIVE = re.compile(
    r"\./|make\b|cmake\s+\.|ninja\b|(python3?|bash|sh)\s+[\w-]+\.(py|sh)\b"
    r"|(python3? -m )?pip3?\s+install\s(.*\s)?\.(\s|$)"
)
_NEXT = 200  # instructions that are searched for a use
# Images of Debian and Ubuntu whose sh is dash, and which set no SHELL.
_DASH = re.compile(r"(docker\.io/)?(library/)?(ubuntu|debian|python)(:(?!.*alpine)|$)|nvidia/cuda:.*ubuntu")
_STARTS_IN_WORKSPACE = re.compile(r"nvcr\.io/nvidia/(pytorch|tensorflow|nemo)[:@]|(docker\.io/)?pytorch/pytorch[:@]")
_OTHER_SHELL = re.compile(r"/bin/sh\b|\bdash\b")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun")
_INTERPRETERS = ("python", "python3")
_IN_SINGLE_QUOTES = re.compile(r"\[\s*'([^']*)'(?:\s*,\s*'[^']*')*\s*\]")
_VARIABLE = re.compile(r"\$(\{\w+\}|[A-Za-z_]\w*)")


@rule("IMG007", "warning")
def instructions_have_their_effect(file: File) -> Iterator[Problem]:
    """What an instruction of a Dockerfile sets must still be there when it is used.

    `RUN export NAME=…` and `RUN cd …` alone: each RUN has a shell of its own, so that the next instruction does not see
    them (a note, unless a later instruction of the stage uses the variable or a file of the directory). `RUN source …`
    with the sh of Debian and Ubuntu, where no SHELL was named (an error). A variable in the exec form of CMD or
    ENTRYPOINT, which no shell replaces. `COPY --from` and mounts of a stage that is named otherwise (`build` for
    `builder`), or of a number that no other stage has (errors). A variable that ARG sets above the first FROM, in a
    stage that does not name it (a note where the base image may set it). CMD beside an ENTRYPOINT in shell form, which
    does not read it, and CMD in shell form beside `ENTRYPOINT ["torchrun", …]` or another launcher. An exec form in
    single quotes, which is none (an error). `RUN nvcc` in a base or runtime image of CUDA, which holds no compiler (an
    error); so is `pip install .` of a directory whose setup.py beside the Dockerfile builds a .cu file in any case.

    Why: each RUN starts a new process (`/bin/sh -c`), and its variables and directory end with it; dash ends the build
    with status 127 at `source`.

    Fix: `ENV NAME=…`, `WORKDIR …`, `. file` or `SHELL ["/bin/bash", "-c"]`, the shell form of CMD, the stage's own
    name, `ARG NAME` in the stage.

    Source: Dockerfile reference, RUN, SHELL, CMD and ENTRYPOINT (shell and exec form, how they interact), ARG (scope),
    COPY --from; dash(1), which has no `source`.

    When to ignore: the line is a leftover without a meaning.
    """
    if file.format != "dockerfile" or not is_about_training(file):
        return
    parts = list(stages(file.text))
    yield from unknown_stages(file, parts)
    yield from lost_arguments(parts)
    for stage in parts:
        yield from dropped_commands(stage)
        yield from missing_compiler(stage, file.path)
        directory = _first_directory(stage)
        for index, one in enumerate(stage.parts):
            if one.keyword == "RUN":
                earlier, later = stage.parts[max(index - _NEXT, 0) : index], stage.parts[index + 1 : index + _NEXT]
                yield from _exported(one, earlier, later)
                yield from _changed_directory(one, directory, earlier, later, of_a_variable="$" in stage.base)
                yield from _sourced(one, stage, file.text)
            elif one.keyword in ("CMD", "ENTRYPOINT"):
                yield from _not_expanded(one)
                yield from _single_quotes(one)
            elif one.keyword == "WORKDIR":
                directory = one.text.strip()
            elif one.keyword == "SHELL":
                stage.shell = True


def _exported(one: Instruction, earlier: list[Instruction], later: list[Instruction]) -> Iterator[Problem]:
    match = _EXPORT.fullmatch(one.text)
    if match is None:
        return
    name = match[1]
    sets, reads = re.compile(rf"(^|[\s;&]){name}="), re.compile(rf"\$\{{?{name}\b")
    used: Level = "info"
    value = one.text.partition("=")[2].strip().strip("\"'")
    same = re.compile(rf"(^|\s){name}[=\s]\s*[\"']?{re.escape(value)}[\"']?(\s|$)")
    if any(before.keyword in ("ENV", "ARG") and same.search(before.text) for before in earlier):
        later = []  # the image has it anyway
    for following in later:
        if following.keyword in ("ENV", "ARG") and re.match(rf"{name}\b", following.text):
            break
        if following.keyword == "RUN" and reads.search(following.text) and not sets.search(following.text):
            used = "warning"
            break
    what = f"RUN export sets {name} for this instruction only: the next one does not see it"
    yield problem(one.span, what, _as_env(one.text[7:].strip()), level=used, why=reasons.ONE_SHELL_EACH)


def _as_env(text: str) -> str:
    """ENV runs no commands and knows no home directory."""
    if "$(" in text or "`" in text:
        return "set it in the RUN that reads it, before that command: ENV runs none"
    home = ", with the directory's path for ~" if re.search(r"[=:\"']~", text) else ""
    return f"write ENV {text}{home}"


def _first_directory(stage: Stage) -> str:
    """Where a stage starts: as the stage that it starts from left it, or where the image is known to start."""
    before = stage.before.inherited if stage.before is not None else []
    left = [one.text.strip() for one in before if one.keyword == "WORKDIR"]
    return left[-1] if left else "/workspace" if _STARTS_IN_WORKSPACE.match(stage.base) else ""


def _changed_directory(
    one: Instruction, here: str, earlier: list[Instruction], later: list[Instruction], *, of_a_variable: bool
) -> Iterator[Problem]:
    match = _CD.fullmatch(one.text)
    if match is None or match[1].rstrip("/") == here.rstrip("/"):
        return
    following = next((part for part in later if part.keyword in ("RUN", "WORKDIR")), None)
    relative = following is not None and following.keyword == "RUN" and _RELATIVE.match(following.text)
    # Where nothing puts a file there, the next command may be meant for the directory that it has.
    name = match[1].rstrip("/").rpartition("/")[2]
    named = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    put = any(named.search(before.text) for before in earlier if before.keyword in ("RUN", "COPY", "ADD"))
    what = (
        f"RUN cd changes the directory for this instruction only: the next one starts in {here or 'that of the image'}"
    )
    unsure = of_a_variable and not here  # the image may start there
    level: Level = "warning" if relative and (put or not here) and not unsure else "info"
    fix = f"write RUN cd {match[1]} && … with the command below"
    if not match[1].startswith(("~", "$HOME", "${HOME}")):  # which WORKDIR does not know
        fix += f", or WORKDIR {match[1]} for all that follow"
    yield problem(one.span, what, fix, level=level, why=reasons.ONE_SHELL_EACH)


def _sourced(one: Instruction, stage: Stage, text: str) -> Iterator[Problem]:
    if stage.shell or not _DASH.match(stage.base) or _NOT_SIMPLE.search(one.text) or not _SOURCE.search(one.text):
        return
    if _OTHER_SHELL.search(text):
        return  # which may be linked to bash
    what = f"sh of {stage.base} is dash, which has no `source`: the build stops"
    alone = _ACTIVATES.fullmatch(one.text.strip())
    fix = 'write SHELL ["/bin/bash", "-c"] above it'
    if alone is not None and alone[1].startswith("/"):  # bash forgets it with the end of the instruction
        fix = f"write ENV PATH={alone[1]}:$PATH instead, which the next instructions have too"
    yield problem(one.span, what, fix, level="error", why=reasons.SOURCE_OF_BASH)


def _single_quotes(one: Instruction) -> Iterator[Problem]:
    words = _IN_SINGLE_QUOTES.fullmatch(one.text.strip())
    if words is not None:
        what = f"single quotes make no JSON list: a shell gets {one.keyword}, and {words[1]} does not start"
        yield problem(one.span, what, 'write it with double quotes: ["program", "word"]', level="error",
                      why=reasons.NO_LIST)  # fmt: skip


def _not_expanded(one: Instruction) -> Iterator[Problem]:
    try:
        words = json.loads(one.text) if one.text.startswith("[") else []
    except ValueError:
        return
    if not words or not all(isinstance(word, str) for word in words) or words[0] not in (*_LAUNCHERS, *_INTERPRETERS):
        return
    named = next((match[0] for word in words[1:] if (match := _VARIABLE.search(word))), None)
    if named is not None:
        unexpanded = problem(
            one.span,
            f"the exec form of {one.keyword} is given to no shell: {words[0]} gets the letters {named}",
            through_shell(one.keyword, words[0]),
            why=reasons.EXEC_FORM,
        )
        # A script of Python may expand what it is given.
        yield unexpanded if words[0] in _LAUNCHERS else replace(unexpanded, level="info")
