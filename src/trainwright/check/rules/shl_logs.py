"""SHL: directories for logs that are not there when Slurm opens the log. A job that makes its own shows that its author
expects it to be missing; then it comes too late. Whether anybody else makes it, comments and neighbouring files say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.check import around, reasons
from trainwright.check.beside import is_directory
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.readers.templates import is_template, without_suffix
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.shl_log_words import explained, has_submitter, made_around
from trainwright.check.rules.slu_pipes import STOPS_AT_FAILURES

CREATES = (25, 11)  # slurmstepd 24.11.5 does not create the directory, 25.11.2 and 26.05.5 do
_FOLDER = re.compile(r"(?!__)[\w.%][\w./% +=,:-]*(?<!%)")  # relative, and no placeholder such as @LOGS or <logs>
_PATTERN = re.compile(r"%(\d*[A-Za-z]|%)")
_KNOWN = ("x", "u", "%")  # the job's name, the user, and the sign itself
_HERE = re.compile(r"(\./|\$\{?(SLURM_SUBMIT_DIR|PWD)\}?/|\$\(pwd\)/|`pwd`/)")
# Directories of a run, which have their own logs: not where sbatch is called.
_ELSEWHERE = re.compile(r"OUT|EXP|RUN|CKPT|CHECKPOINT|SAVE|RESULT|DATA|CACHE|TMP|TEMP|MODEL|LOG", re.IGNORECASE)
_LOCAL = re.compile(r"/(tmp|dev|var|local|local_scratch|localscratch)/")
# `{nodes}`, `@NODES@`, `__NODES__`: a program fills the script in and submits it.
_FILLED_IN = re.compile(r"^#SBATCH.*(\{[A-Za-z_]\w*\}|@[A-Za-z_]\w*@|__[A-Z_]+__)", re.MULTILINE)
_NEXT_PART = re.compile(r"^#SBATCH\s+(hetjob|packjob)\b", re.MULTILINE)
_OUTSIDE_A_JOB = re.compile(
    r"-z\s+[\"']?\$\{?SLURM_JOB_?ID|-n\s+[\"']?\$\{?SLURM_JOB_?ID[^\n]*\|\||!\s*-v\s+SLURM_JOB_?ID|"
    r"SLURM_JOB_?ID[^\n]*==?\s*(\"\"|'')"
)
_ASKED = re.compile(r"mkdir[^;|&\n]*(&&|\|\|\s*(exit|\{))")
_PARENTS = re.compile(r"-\w*p\w*|--parents")
_ITSELF = re.compile(r"\$\{?(0|BASH_SOURCE)\b")


@dataclass(frozen=True, slots=True)
class _Log:
    """Where a directive writes: its option, the directory as written, and as a shell would name it."""

    option: str
    value: Value[str]
    folder: str
    named: str  # with %x and %u filled in
    open: bool  # holds the number of a job, a node or a task, which nobody knows before


def missing_log_directories(file: File, script: ShellScript) -> Iterator[Problem]:
    logs = [log for log in _logs(file, script) if not _exists(file.path, script, log)]
    if not logs or file.path == "<stdin>" or _creates_them(file) or "$" in _chdir(script):
        return
    made = [log for log in logs if any(_makes(script, c, log) for c in _makers(script))]
    if _submits_itself(script, made) or any(explained(script, log.folder) for log in logs):
        return
    first = (made or logs)[0]
    maker = made_around(file, first.folder)
    if maker == "before the job":
        return
    certain = bool(made) and not maker and not _is_filled_in(file) and not has_submitter(file, script)
    yield problem(
        first.value,
        _message(logs, certain),
        _fix(script, logs),
        level=None if certain else "info",  # it may exist where the job is submitted
        why=reasons.NO_LOG_DIRECTORY,
    )


def _logs(file: File, script: ShellScript) -> list[_Log]:
    """The logs in directories of their own; of an option that is given twice the last counts."""
    part = _NEXT_PART.search(file.text)  # the script of a heterogeneous job runs in its first part
    end = file.text.count("\n", 0, part.start()) + 1 if part is not None else len(file.text)
    directives = [(name, value) for name, value in script.directives if value.span.line < end]
    given = {name: value for name, value in directives if name in ("output", "error")}
    name = dict(script.directives).get("job-name")
    job = name.value if name is not None and name.value else Path(file.path).name
    known = {"x": job, "u": "$USER", "%": "%"}
    logs = []
    for option, value in sorted(given.items(), key=lambda one: one[1].span.line):
        folder = value.value.rpartition("/")[0]
        if _FOLDER.fullmatch(folder) and folder.strip("./"):
            named = _PATTERN.sub(lambda match: known.get(match[1], match[0]), folder)
            logs.append(_Log(option, value, folder, named, any(m[1] not in _KNOWN for m in _PATTERN.finditer(folder))))
    return logs


def _creates_them(file: File) -> bool:
    version = file.targets.get("slurm", "")
    return bool(version) and tuple(map(int, version.split(".")[:2])) >= CREATES


def _chdir(script: ShellScript) -> str:
    """The directory that a relative log is in, where a directive says it."""
    given = dict(script.directives).get("chdir")
    return given.value.rstrip("/") if given is not None else ""


def _exists(path: str, script: ShellScript, log: _Log) -> bool:
    """Whether the directory exists where a user would run sbatch."""
    below = Path(_chdir(script)) / log.named
    return any(is_directory(str(place / below)) for place in (*around.directories(path), Path.cwd()))


def _makers(script: ShellScript) -> list[Command]:
    return [command for command in script.commands if command.program == "mkdir"]


def _makes(script: ShellScript, command: Command, log: _Log) -> bool:
    """Whether a command of the job makes the directory, in the place of submission as far as that can be seen."""
    if command.runner is not None and command.runner.program == "docker":
        return False
    wanted, *rest = _PATTERN.split(log.folder.removeprefix("./"))
    wanted = wanted.rstrip("/")
    return bool(wanted) and any(_is_it(script, word, wanted, bool(rest)) for word in command.words[1:])


def _is_it(script: ShellScript, word: Value[str], wanted: str, open_ended: bool) -> bool:
    """`$PROJECT/logs` may be the directory, `results/logs` is not. `mkdir -p logs/run` makes logs only on its way, for
    something else, unless the log's own directory goes on behind it (`logs/%x`)."""
    for path in _spelled_out(word.value.strip("\"'")):
        here = _HERE.match(path)
        below = f"{path[here.end() if here else 0 :].rstrip('/')}/"
        if below == f"{wanted}/" or (open_ended and below.startswith(f"{wanted}/")):
            return True
        before, slash, after = f"{path.rstrip('/')}/".partition(f"/{wanted}/")
        if after and not open_ended:
            continue
        if not slash or before[:1] not in ("", "/", "$", "`", "~") or _LOCAL.match(f"{before}/"):
            continue
        if before[:1] == "/" and word.text.strip("\"'").startswith("/"):
            continue  # a path of one machine: who has it has made the directory, in an earlier run
        if not _is_of_a_run(script, wanted):
            return True
    return False


def _is_of_a_run(script: ShellScript, wanted: str) -> bool:
    """Whether every `$NAME/logs` of the script is below the directory of a run."""
    answers = script.derived(_answers)
    if wanted not in answers:
        variables = re.findall(rf"\$\{{?(\w+)\}}?/+{re.escape(wanted)}\b", script.text)
        answers[wanted] = bool(variables) and all(_ELSEWHERE.search(name) for name in variables)
    return answers[wanted]


def _answers(_script: ShellScript) -> dict[str, bool]:
    """By directory, filled in as they are asked for."""
    return {}


def _spelled_out(path: str) -> list[str]:
    """`{logs,checkpoints}` and `out/{logs,models}` as the paths that they stand for."""
    braces = re.search(r"(?<!\$)\{([^{}]*,[^{}]*)\}", path)
    if braces is None:
        return [path]
    return [path[: braces.start()] + part + path[braces.end() :] for part in braces[1].split(",")]


def _submits_itself(script: ShellScript, made: list[_Log]) -> bool:
    """A script that, called outside a job, makes the directory and calls sbatch: it tests for that, or a branch
    submits the script itself."""
    submits = [command for command in script.commands if command.program == "sbatch"]
    makes = [c for c in _makers(script) if any(_makes(script, c, log) for log in made)]
    if not submits or not makes or makes[0].span.line > submits[-1].span.line:
        return False
    itself = submits[-1].branch and makes[0].branch and any(_ITSELF.search(word.value) for word in submits[-1].words)
    return itself or _OUTSIDE_A_JOB.search(script.text) is not None


def _is_filled_in(file: File) -> bool:
    name = Path(file.path).name
    return (
        is_template(file.text)
        or without_suffix(name) != name
        or "template" in name.lower()
        or _FILLED_IN.search(file.text) is not None
    )


def _message(logs: list[_Log], certain: bool) -> str:
    names = " and ".join(dict.fromkeys(f"{log.folder.removeprefix('./')}/" for log in logs))
    if any(log.open for log in logs):
        return (
            f"Slurm (up to 24.11) does not create {names}, and before the job starts nobody can: the job fails and "
            "leaves no log"
        )
    if certain:
        return (
            "Slurm (up to 24.11) opens the log before the job's own mkdir runs: where "
            f"{names} is missing, the job fails and leaves no log"
        )
    return f"Slurm (up to 24.11) does not create {names}: where it is missing, the job fails and leaves no log"


def _fix(script: ShellScript, logs: list[_Log]) -> str:
    options = " and ".join(f"--{log.option}" for log in logs)
    if any(log.open for log in logs):
        written = " and ".join(dict.fromkeys(_flat(log) for log in logs))
        parents = dict.fromkeys(_parent(log) for log in logs)
        made = " ".join(_word(one) for one in parents if one.strip("./"))
        return f"write {written}" + (f", and run `mkdir -p {made}` before you submit" if made else "")
    below = _chdir(script)
    places = dict.fromkeys(f"{below}/{log.named}" if below else log.named for log in logs)
    words = " ".join(map(_word, places))
    where = "" if below.startswith("/") else ", where you call sbatch,"
    again = _second_mkdir(script, logs)
    other = "" if any(_reads(script, log) for log in logs) else f", or remove the directory from {options}"
    return f"run `mkdir -p {words}`{where} before you submit{again}{other}"


def _word(path: str) -> str:
    return path if "$USER" in path else shlex.quote(path)


def _flat(log: _Log) -> str:
    """The log beside the directory that nobody can make: `logs/%A/%a.out` as `logs/%A_%a.out`."""
    parts, kept = log.value.value.split("/"), _kept(log)
    return "/".join([*parts[:kept], "_".join(parts[kept:])])


def _parent(log: _Log) -> str:
    return "/".join(log.named.split("/")[: _kept(log)])


def _kept(log: _Log) -> int:
    """How many folders stand before the first with a number that nobody knows."""
    parts = log.folder.split("/")
    open_ = (any(m[1] not in _KNOWN for m in _PATTERN.finditer(part)) for part in parts)
    return next((at for at, is_open in enumerate(open_) if is_open), len(parts))


def _reads(script: ShellScript, log: _Log) -> bool:
    """Whether a command names a file of the directory as Slurm's log, which would not be there without it."""
    name = re.escape(log.folder.removeprefix("./"))
    of_job = re.compile(rf"(?<![\w-]){name}/[^\s\"']*\$\{{?SLURM_(ARRAY_)?JOB")
    return any(of_job.search(line) for line in script.lines if not line.lstrip().startswith(("#", "echo")))


def _second_mkdir(script: ShellScript, logs: list[_Log]) -> str:
    """The job's own `mkdir` without -p fails where the directory exists, and may end the script."""
    stops = STOPS_AT_FAILURES.search(script.text) is not None
    for command in _makers(script):
        if command.branch or command.conditional or any(_PARENTS.fullmatch(word.value) for word in command.words[1:]):
            continue
        at = command.span.line - script.first_line
        line = script.lines[at] if 0 <= at < len(script.lines) else ""
        asked = (stops and "|| true" not in line) or _ASKED.search(line) is not None
        if asked and any(_makes(script, command, log) for log in logs):
            return f" and write `mkdir -p` in line {command.span.line}"
    return ""
