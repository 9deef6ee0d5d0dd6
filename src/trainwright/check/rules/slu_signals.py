"""SLU: the signal that Slurm sends before the end of a job, and the trap that is to answer it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.launchers import STARTERS
from trainwright.check.model import Command, ShellScript, Value
from trainwright.check.registry import Problem, problem

_DIRECTIVE = re.compile(r"(?P<flags>[BR]*):?(?:SIG)?(?P<name>[A-Z]+\d?|\d+)(?:@(?P<seconds>\d+))?", re.IGNORECASE)
_NUMBERS = {"10": "USR1", "12": "USR2"}
_OWN = ("USR1", "USR2")  # signals that Slurm and a terminal do not send of themselves
_STEPS = re.compile(r"\b(srun|mpirun|mpiexec|orterun|prun)\b")
_SHELL = re.compile(r"#!\s*\S*\b(ba|da|z|k)?sh\b|#!\s*/usr/bin/env\s+(-S\s+)?(ba|z)?sh\b")
# What lasts or ends the job; a command that a variable names may be any of these.
_LASTS = re.compile(r"\b(wait|exit|requeue|kill|scancel|sbatch|exec|eval|sleep|srun|python3?)\b|(^|[;&|{(`\n])\s*\"?\$")
_WORDS = ("echo", "printf", "date", "exit")
_TESTS = ("[", "[[", "test")
_OTHERWISE = re.compile(r"\b(else|elif|case|while|until)\b|\|\|")
_SIGNALLED = 128  # and the number of the signal: the status of a wait that it ends
_KILLED_AT_THE_SIGNAL = (
    "a signal with a trap ends `wait` at once, with a status above 128. The script ends minutes before its limit, and "
    "Slurm kills its steps: 1 signal that was to let the training save its state ends it."
)
_STEPS_ONLY = (
    "Slurm signals the steps of srun, not the batch shell, unless the option begins with B:. The trap never runs, and "
    "a step that does not handle the signal is ended by it, 1 process after the other."
)
_ENDS_THE_SHELL = (
    "without a trap the signal ends the batch shell, and Slurm ends the job with it: training stops that many seconds "
    "before its time, without a checkpoint."
)
_DEFERRED = (
    "bash runs a trap only when the command that it waits for has ended: the signal comes minutes before the limit, "
    "the trap runs when Slurm has already ended the training."
)


def unanswered_signals(script: ShellScript) -> Iterator[Problem]:
    """`--signal=USR1@300` with a trap in the batch shell, `--signal=B:…` without one, or with one that comes late."""
    given = [value for name, value in script.directives if name == "signal"]
    match = _DIRECTIVE.fullmatch(given[-1].value) if given else None
    if match is None or not _SHELL.match(script.text) or script.sources_others:
        return
    name = _name(match["name"])
    if name not in _OWN or _is_sent(script, name):
        return
    traps = [command for command in script.commands if command.program == "trap" and name in _signals(command)]
    own = [trap for trap in traps if trap.runner is None and trap.subshell is None]
    if "B" not in match["flags"].upper():
        yield from _to_steps(given[-1], name, own, script)
    elif not traps and not re.search(rf"\b(SIG)?{name}\b", _without_directives(script)):
        yield from _ends_the_shell(given[-1], name, match["seconds"], script)
    else:
        yield from _deferred(own, name, script)
        yield from _cut_short(own, name, script)


def _to_steps(given: Value[str], name: str, traps: list[Command], script: ShellScript) -> Iterator[Problem]:
    starts = [one for one in script.commands if one.program in STARTERS]
    if not traps and starts and not _STEPS.search(_without_directives(script)):
        yield problem(
            given,
            f"{name} goes to the steps of srun, and the script starts none: {starts[-1].program} gets no signal",
            f"start {starts[-1].program} by srun (line {starts[-1].span.line})",
            level="info",  # a program of the script may start steps
            why="a program that the batch shell starts itself gets no warning: Slurm ends it at the limit, and what it "
            "trained since its last checkpoint is lost.",
        )
    if traps and _action(traps[-1]) not in ("", "-", ":", "true"):
        yield problem(
            given,
            f"{name} goes to the steps of srun only: the trap of line {traps[-1].span.line} never runs",
            f"write --signal=B:{given.value}{_in_background(script)}",
            why=_STEPS_ONLY,
        )


def _ends_the_shell(given: Value[str], name: str, seconds: str | None, script: ShellScript) -> Iterator[Problem]:
    if any(command.program == "exec" for command in script.commands) or not any(map(_starts, script.commands)):
        return
    steps = any(command.program == "srun" for command in script.commands)
    other = "; or remove B:, if the program that srun starts handles the signal" if steps else ""
    yield problem(
        given,
        f"{name} ends the batch shell, which has no trap for it, {seconds or 60} seconds before the job's end",
        f"add `trap … {name}` above{_in_background(script)}{other}",
        why=_ENDS_THE_SHELL,
    )


def _in_background(script: ShellScript) -> str:
    """What a trap needs beside the signal, where bash waits for the training and runs the trap only then."""
    last = [one for one in script.commands if _starts(one) and one.runner is None][-1:]
    if not last or last[0].background:
        return ""
    return f", and start {last[0].program} in the background: `{last[0].program} … & wait $!; wait $!`"


def _deferred(traps: list[Command], name: str, script: ShellScript) -> Iterator[Problem]:
    """A trap that waits for the training, because bash does."""
    if len(traps) != 1 or traps[0].conditional or not _action(traps[0]) or re.search(r"\bwait\b", script.text):
        return
    started = [one for one in script.commands if _starts(one) and one.span.line > traps[0].span.end_line]
    plain = [one for one in started if one.runner is None and one.subshell is None]
    if not plain or any(one.background or one.conditional or one.branch for one in started):
        return
    yield problem(
        traps[0].words[0],
        f"bash runs the trap for {name} only when {plain[-1].program} (line {plain[-1].span.line}) has ended",
        f"start it in the background: `{plain[-1].program} … & wait $!; wait $!` (the trap ends the first wait)",
        why=_DEFERRED,
    )


def _cut_short(traps: list[Command], name: str, script: ShellScript) -> Iterator[Problem]:
    """`trap 'touch stop' USR1` and one `wait`: the signal ends the wait, and the script."""
    if len(traps) != 1 or traps[0].conditional or not _action(traps[0]) or _LASTS.search(_done_by(traps[0], script)):
        return
    waits = [at for at, command in enumerate(script.commands) if command.program == "wait"]
    running = [one for one in script.commands[: waits[0]] if _starts(one) and one.background] if waits else []
    if len(waits) != 1 or not running or script.commands[waits[0]].conditional:
        return
    if _goes_to_its_end(script, waits[0]):
        yield problem(
            script.commands[waits[0]].words[0],
            f"the trap for {name} ends this wait, and with it the script: Slurm then kills {running[-1].program}",
            "wait again: `wait $!; wait $!`",
            why=_KILLED_AT_THE_SIGNAL,
        )


def _goes_to_its_end(script: ShellScript, at: int) -> bool:
    """Whether nothing that lasts follows a wait, or only where its status is one of the program's own."""
    after = script.commands[at + 1 :]
    tests = [one for one in after if one.program in _TESTS]
    tail = "\n".join(script.lines[script.commands[at].span.line - script.first_line :])
    told = bool(tests) and not _OTHERWISE.search(tail) and all(_asks_for_status(one, tail) for one in tests)
    rest = [one for one in after if one.program not in _WORDS and one not in tests]
    return (told or not tests) and all(told and one.branch for one in rest)


def _asks_for_status(test: Command, tail: str) -> bool:
    """`[ "$status" -eq 85 ]` behind `status=$?`."""
    words = [word.value.strip("\"'") for word in test.words[1:] if word.value not in ("]", "]]")]
    if len(words) != 3 or words[1] not in ("-eq", "=", "==") or not words[2].isdecimal():
        return False
    name = words[0].strip("${}")
    own = name == "?" or re.search(rf"\b{re.escape(name)}=\$\?", tail) is not None
    return own and int(words[2]) <= _SIGNALLED


def _done_by(trap: Command, script: ShellScript) -> str:
    """The text of a trap, with that of the function that it calls."""
    action = _action(trap)
    name = re.escape(action.split()[0])
    body = re.search(
        rf"^[ \t]*(function[ \t]+)?{name}[ \t]*(\(\))?[ \t]*\{{(.*?)(?:^|;)[ \t]*\}}",
        script.text,
        re.MULTILINE | re.DOTALL,
    )
    return f"{action} {body[3]}" if body is not None else action


def _starts(command: Command) -> bool:
    return command.program in STARTERS


def _name(written: str) -> str:
    return _NUMBERS.get(written, written.upper().removeprefix("SIG"))


def _words(trap: Command) -> list[Value[str]]:
    return [word for word in trap.words[1:] if word.value != "--"]


def _signals(trap: Command) -> list[str]:
    return [_name(word.value) for word in _words(trap)[1:]]


def _action(trap: Command) -> str:
    words = _words(trap)
    return words[0].value.strip() if words else ""


def _without_directives(script: ShellScript) -> str:
    return "\n".join(line for line in script.lines if not line.startswith("#"))


def _is_sent(script: ShellScript, name: str) -> bool:
    """Whether the script, or a comment in it, says who else sends the signal."""
    return re.search(rf"(scancel|kill)\b[^\n]*\b(SIG)?{name}\b", script.text) is not None
