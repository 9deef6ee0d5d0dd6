"""SLU: failures that a pipe into tee hides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePath

from trainwright.check import around, reasons
from trainwright.check.beside import text_beside
from trainwright.check.finding import Level
from trainwright.check.launches.launchers import STARTERS
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.readers.shell_quotes import string_around, strings_of_shells
from trainwright.check.registry import Problem, problem

_DIAGNOSES = ("nvidia-smi", "hostname", "lscpu", "env", "uname", "rocm-smi", "ibstat", "date")
_STATUS_OF_PIPE = re.compile("pipefail|PIPESTATUS")
STOPS_AT_FAILURES = re.compile(r"^\s*set\s+(-\w*e|-o\s+errexit)|\A#!.*sh\s+-\w*e", re.MULTILINE)
_TRAINERS = ("torchrun", "accelerate", "deepspeed")
_TRAINING = re.compile(
    r"(?<!cons)(?<!res)(?<!\bs)train(?!ed)|((?<![a-z])|(?<=fine))tun(er?|ing)(?![a-z])"
    r"|(?<![a-z])(fit|sft|dpo|ppo|grpo|rlhf|lora)(?![a-z])|epochs?(?![a-z])|max[_-]?steps|learning[_-]rate"
    r"|^(--|\+*(\w+\.)*)lr(?![a-z])",
    re.IGNORECASE,
)
_MODE = re.compile(r"(.*[-_.])?(mode|phase)", re.IGNORECASE)
_DEPENDS = re.compile(r"\bafterok\b|\bafternotok\b|--requeue\b|\brequeue\b")
_NO_STEPS = ("exit", "true", ":", "set", "module", "wait")
_NO_EFFECT = (*_NO_STEPS, "echo", "printf", "date")  # `echo "exit code: $?"` and nothing else: a status is only shown
_EXITS_WITH = re.compile(r"\bexit\s+[\"']?\$")
_CONDITION = re.compile(r"\s*(if|elif|while|until)\s+(!\s+)?(\w+=\S*\s+)*")
_OPERATOR = re.compile(r"(&&|\|\|)\s*(true\b|:)?")
OF_SH = re.compile(r"#!\s*(/usr)?/bin/(env\s+)?(da)?sh\b")  # which has neither pipefail, PIPESTATUS nor `((`
_NEAR = 10  # lines in which the next statement begins
_GOES_ON = (
    "without `pipefail` a pipe has the status of its last command, and tee ends with 0: after a crash `set -e` stops "
    "nothing, and what follows copies, deletes or evaluates a model that is not there. The job ends as COMPLETED, 0:0."
)
_TAKEN_FOR_SUCCESS = (
    "without `pipefail` a pipe has the status of its last command, and tee ends with 0: after a crash the script goes "
    "the way of a training that has ended well."
)


def reads_status_of_pipe(text: str) -> bool:
    """Whether a script asks for the status of each command of a pipe."""
    return _STATUS_OF_PIPE.search(text) is not None


def asks_for_status(file: File, script: ShellScript) -> bool:
    """The same of a batch script with the files beside it that it sources (`. common.sh`, which sets pipefail)."""
    if reads_status_of_pipe(file.text):
        return True
    sourced = [one.words[1].value for one in script.commands if one.program in ("source", ".") and len(one.words) > 1]
    texts = (text_beside(file.path, name.rpartition("/")[2] if "$" in name else name) for name in sourced)
    return any(text is not None and reads_status_of_pipe(text) for text in texts)


def command_before_tee(script: ShellScript) -> Command | None:
    """What starts the training where a script ends with `… | tee log` and does not ask for the status of the pipe."""
    if reads_status_of_pipe(script.text) or not script.commands:
        return None
    last = script.commands[-1]
    before = [command for command in script.commands if command.piped and _starts(command)]
    if last.program != "tee" or last.conditional or not before or before[-1].conditional:
        return None
    line = before[-1].span.end_line
    shows = any(c.program in _DIAGNOSES and c.span.line == before[-1].span.line for c in script.commands)
    return before[-1] if last.span.line in (line, line + 1) and not shows else None


def _starts(command: Command) -> bool:
    """`python --version` and `python -c "print(…)"` show something."""
    second = command.words[1].value if len(command.words) > 1 else ""
    return command.program in STARTERS and second not in ("-c", "-V", "--version")


def lost_status(file: File, script: ShellScript) -> Iterator[Problem]:
    """`srun … | tee log` as the last command: the job ends with the status of tee."""
    command = command_before_tee(script) if not asks_for_status(file, script) else None
    if command is not None:
        yield problem(
            command.words[0],
            f"the job ends with the status of tee: when {command.program} fails, Slurm sees COMPLETED",
            f"{_with_pipefail(script, command)}, or let #SBATCH --output write the log",
            level=_level(file, script, command),
            why=reasons.STATUS_OF_TEE,
        )


def _level(file: File, script: ShellScript, command: Command) -> Level | None:
    """A note where nothing shows that the status of the job matters to anybody."""
    return None if _trains(script, command) or _is_waited_for(file) else "info"


def _trains(script: ShellScript, command: Command) -> bool:
    """Whether the job's name or the command that it ends with speaks of training."""
    names = [value.value for name, value in script.directives if name == "job-name"]
    own = [command, *(one for one in script.commands if one.runner is command)]
    names += [name for one in own for name in _names(one)]
    return any(one.program in _TRAINERS for one in own) or any(map(_TRAINING.search, names))


def _names(command: Command) -> Iterator[str]:
    """What says what a command does: the names of its program, its action (`main.py train`, `--mode train`) and its
    options. Their other values name data: `preprocess.py --out /data/train`."""
    words = [word.value for word in command.words]
    files = [at for at, word in enumerate(words) if word.endswith((".py", ".sh")) or (at and words[at - 1] == "-m")]
    program = files[0] if files else 1 if command.program.startswith("python") and len(words) > 1 else 0
    yield PurePath(words[program]).name
    if program + 1 < len(words) and words[program + 1].isalpha():
        yield words[program + 1]
    for word, following in pairwise([*words[1:], ""]):
        option, equals, value = word.partition("=")
        if word.startswith("-") or equals:
            yield option
        if _MODE.fullmatch(option):
            yield value if equals else following


def _is_waited_for(file: File) -> bool:
    """Whether the script, or a text of the repository that names it, makes something depend on how the job ends."""
    path = Path(file.path).absolute()
    texts = around.texts(str(path.parent)) if file.path != "<stdin>" else []
    others = (text for place, text in texts if place != path and path.name in text)
    return any(map(_DEPENDS.search, [file.text, *others]))


def _with_pipefail(script: ShellScript, command: Command) -> str:
    """How to see the status of a pipe. dash has no such option, and the shell of a string does not take it over."""
    place = (command.words[0].span.line, command.words[0].span.column)
    string = string_around(place, strings_of_shells(script.text.split("\n")))
    if string is not None:
        first = "begin the text" if string.shell == "bash" else "use bash -c, and begin its text"
        return f"{first} between the quotes with `set -o pipefail; `"
    return (
        "begin with #!/bin/bash and add `set -o pipefail`"
        if OF_SH.match(script.text)
        else "add `set -o pipefail` before it"
    )


def unseen_failures(file: File, script: ShellScript) -> Iterator[Problem]:
    """`srun … | tee log` in the middle of a script: `set -e`, `if` and `$?` see the status of tee. A script that is no
    batch script must ask for the status itself, and be one that is run: what is sourced has the options of another."""
    batch = script.kind == "sbatch"
    if "tee" not in script.text or asks_for_status(file, script) or not (batch or script.text.startswith("#!")):
        return
    stops = STOPS_AT_FAILURES.search(script.text) if batch else None
    sh = OF_SH.match(script.text) is not None
    from_line = script.text.count("\n", 0, stops.start()) + script.first_line if stops is not None else 0
    last = max((one.span.line for one in script.commands if one.program not in _NO_STEPS), default=0)
    for command, tee in _into_tee(script):
        asked = _asks_for_status(script, command, tee)
        if asked or (stops is not None and from_line < command.span.line and last > tee.span.end_line):
            what = f"{asked or 'set -e'} sees the status of tee"
            after = [one for one in script.commands if one.span.line > tee.span.end_line]
            uses = _EXITS_WITH.search(script.text) or any(one.program not in _NO_EFFECT for one in after)
            yield problem(
                command.words[0],
                f"{what}: when {command.program} fails, the script goes on as if it had not",
                _with_pipefail(script, command)
                + (", or read ${PIPESTATUS[0]}" if asked in ("", "`$?`") and not sh else ""),
                level=None if uses or asked not in ("", "`$?`") else _level(file, script, command),
                why=_GOES_ON if batch else _TAKEN_FOR_SUCCESS,
            )
            return


def _into_tee(script: ShellScript) -> Iterator[tuple[Command, Command]]:
    """The commands that start something and whose output goes to tee, in every run or as a condition."""
    before: Command | None = None
    for command in script.commands:
        if command.program == "tee":
            if before is not None and not command.piped and command.span.line <= before.span.end_line + 1:
                certain = not command.branch or _condition(script, before)
                if certain and not _is_ignored(script, before, command):
                    yield before, command
            before = None
        elif command.piped and _starts(command) and command.runner is None:
            before = command
        elif not command.piped:
            before = None


def _condition(script: ShellScript, before: Command) -> str:
    """The word that makes a pipe a condition: `if srun … | tee log; then`."""
    at = before.span.line - script.first_line
    line = script.lines[at] if 0 <= at < len(script.lines) else ""
    match = _CONDITION.match(line)
    return match[1] if match is not None and match.end() >= before.span.column - 1 else ""


def _behind(script: ShellScript, tee: Command) -> str:
    """What stands behind a pipe on its last line."""
    at = tee.span.end_line - script.first_line
    line = script.lines[at] if 0 <= at < len(script.lines) else ""
    return re.split(r"\|\s*tee\b[^;&|]*", line)[-1] if "tee" in line else ""


def _is_ignored(script: ShellScript, before: Command, tee: Command) -> bool:
    """Of a longer condition another command decides, and who writes `|| true` does not ask."""
    operator = _OPERATOR.match(_behind(script, tee))
    return operator is not None and bool(_condition(script, before) or operator[2])


def _asks_for_status(script: ShellScript, before: Command, tee: Command) -> str:
    """What asks for the status of a pipe: the word before it, the operator behind it, or `$?` in the next statement."""
    word, behind = _condition(script, before), _behind(script, tee)
    operator = _OPERATOR.match(behind)
    if word or operator is not None:
        return f"`{operator[1] if operator is not None else word}`"
    at = tee.span.end_line - script.first_line
    lines = script.lines[at + 1 : at + _NEAR]
    following = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    asked = re.search(r"\$\?|\$\{\?\}", behind if behind.strip(" ;") else following)
    return "`$?`" if asked is not None else ""
