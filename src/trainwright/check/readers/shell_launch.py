"""One written command as the commands it starts: `srun … torchrun … train.py …` is srun, and torchrun under it."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.check.model import Command, Value
from trainwright.check.readers.shell_expand import Part, Parts, value_of
from trainwright.spec.source import Span

RUNNERS = {"srun", "mpirun", "mpiexec", "docker", "env", "nohup", "sudo", "exec", "time", "timeout", "numactl", "nsys"}
_WRAPPERS = {"env", "nohup", "sudo", "exec", "time", "timeout", "numactl", "nsys"}  # they start nothing elsewhere
LAUNCHERS = {
    "torchrun",
    "accelerate",
    "deepspeed",
    "composer",
    "hyperpodrun",
    "fairseq-train",
    "fairseq-hydra-train",
    "python",
    "python3",
}
_SHELLS = {"bash", "sh", "zsh"}
_FLAGS_ALONE = {
    "-l", "--label", "-K", "--kill-on-bad-exit", "-u", "--unbuffered", "-v", "-Q", "--exclusive", "--overlap", "-s",
    "--oversubscribe", "--pty", "--no-container-mount-home", "--container-mount-home", "--container-writable",
    "--container-remap-root", "--no-container-remap-root", "--no-container-entrypoint", "--allow-run-as-root", "-it",
    "--rm", "-d", "--privileged", "--init", "-i", "-t", "-q", "--quiet", "-O", "--overcommit", "--tag-output",
    "--verbose", "-E", "-n1", "--wait-for-children", "--no-kill", "-k",
}  # fmt: skip
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*|\+{0,2}[A-Za-z_][\w.]*)(=)?")


def commands_of(words: list[Parts], span: Span, inside: Command | None, conditional: bool) -> list[Command]:
    """The commands of one line, outermost first."""
    commands: list[Command] = []
    runner = inside
    rest = words
    while rest:
        head = _name(rest[0])
        login = head == "docker" and len(rest) > 1 and _name(rest[1]) == "login"  # starts nothing
        length = _own_words(rest) if head in RUNNERS and not login else len(rest)
        command = _command(rest[:length], span, conditional)
        command.inside_srun = runner is not None and _starts_ranks(runner)
        command.runner = runner
        commands.append(command)
        if head in RUNNERS and head not in _WRAPPERS:
            runner = command
        rest = rest[length:]
    return commands


def _starts_ranks(runner: Command) -> bool:
    return runner.program in ("srun", "mpirun", "mpiexec")


def _name(parts: Parts) -> str:
    text = "".join(part.text for part in parts)
    return text.rsplit("/", 1)[-1]


def is_launcher(name: str) -> bool:
    return name in LAUNCHERS or re.fullmatch(r"python3?(\.\d+)?|.*_perf", name) is not None


def _own_words(words: list[Parts]) -> int:
    """How many words belong to the runner itself."""
    first = 1 if _name(words[0]) in _WRAPPERS else 2  # `exec srun` starts srun, `docker exec` is docker's own
    for index, parts in enumerate(words[1:], start=1):
        name = _name(parts)
        if is_launcher(name) or name in _SHELLS or (name in RUNNERS and index >= first):
            return index
    index = 1
    while index < len(words):
        text = "".join(part.text for part in words[index])
        if not text.startswith("-"):
            return index
        alone = "=" in text or text in _FLAGS_ALONE or re.fullmatch(r"-[A-Za-z]\d+", text)
        index += 1 if alone else 2
    return min(index, len(words))


def _command(words: list[Parts], span: Span, conditional: bool) -> Command:
    values = [value_of(parts, span) for parts in words]
    invoked = values[0] if values else None
    if values:
        values[0] = replace(values[0], value=_name(words[0]))
    batch = frozenset(
        part.variable or part.text for parts in words for part in parts if not part.known and part.by_batch
    )
    options = _options(words, values)
    return Command(values, span, options=options, batch_variables=batch, invoked=invoked, conditional=conditional)


def _options(words: list[Parts], values: list[Value[str]]) -> dict[str, Value[str]]:
    """Every `--name value`, `--name=value` and `key=value`, the last one winning as argument parsers have it."""
    options: dict[str, Value[str]] = {}
    for index, (parts, value) in enumerate(zip(words, values, strict=True)):
        match = _OPTION.match(value.value)
        if index == 0 or match is None:
            continue
        name = match[1].lstrip("-+").replace("-", "_")
        joined = re.fullmatch(r"-([A-Za-z])(\d+)", value.value)
        if joined is not None:
            options[joined[1]] = replace(value, value=joined[2], key=value.span)
        elif match[2]:
            options[name] = replace(value_of(_after(parts, match.end()), value.span), key=value.span)
        elif value.value.startswith("-") and match.end() == len(value.value):
            following = values[index + 1] if index + 1 < len(values) else None
            if following is not None and not re.match(r"--?[A-Za-z]", following.value):
                options[name] = replace(following, key=value.span)
            else:
                options[name] = Value("", value.span, "", value.span)
    return options


def _after(parts: Parts, length: int) -> Parts:
    """The parts of a word after its first `length` characters."""
    rest: list[Part] = []
    for part in parts:
        if length >= len(part.text):
            length -= len(part.text)
            continue
        rest.append(part.cut(length, len(part.text)) if length else part)
        length = 0
    return rest


def shell_string(words: list[Parts]) -> Parts | None:
    """The script of `bash -c '...'`, anywhere in the line."""
    for index, parts in enumerate(words[:-2]):
        if _name(parts) not in _SHELLS:
            continue
        for offset, flag in enumerate(words[index + 1 : -1], start=index + 1):
            text = "".join(part.text for part in flag)
            if not text.startswith("-"):
                break
            if re.fullmatch(r"-[a-z]*c", text):
                return words[offset + 1]
    return None
