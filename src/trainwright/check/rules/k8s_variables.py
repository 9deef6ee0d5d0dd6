"""K8S: `$NAME` where no shell reads it: Kubernetes itself replaces `$(NAME)` only. What envsubst or another program may
fill in before looks the same, so that only names count which the manifest itself or a controller defines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.launchers import (
    NUMBERS_AND_ADDRESSES,
    is_program,
    is_torchrun,
    launcher_of,
    own_options,
)
from trainwright.check.model import Command, File, Value
from trainwright.check.readers.kubernetes import direct_commands, pod_specs
from trainwright.check.readers.kubernetes_pods import command_words
from trainwright.check.readers.templates import without_suffix
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

SHELLS = ("sh", "bash", "zsh", "dash", "ash", "ksh")
_REFERENCE = re.compile(r"(?<![$\\])\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_INDEX = "JOB_COMPLETION_INDEX"
_OF_OPERATOR = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_OF_SYSTEM = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME")  # no sign of a template
_VARIABLES = frozenset({
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "PET_NNODES", "PET_NODE_RANK",
    "PET_NPROC_PER_NODE", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "PET_MASTER_PORT",
})  # fmt: skip
_TEMPLATE = re.compile(r"templ|tmpl|tpl|envsubst", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Container:
    """A container, and the names whose value is known to be set in it."""

    node: Node
    defined: frozenset[str]

    @property
    def has_shell(self) -> bool:
        return any(word.text.rsplit("/", 1)[-1] in SHELLS for word in command_words(self.node))


def unexpanded(file: File) -> Iterator[Problem]:
    """References that stay as they are."""
    name = PurePath(file.path).name
    if _TEMPLATE.search(name) or without_suffix(name) != name or "envsubst" in file.text:
        return
    containers = [one for root in file.nodes for one in _containers(root)]
    if not any("$" in node.text for one in containers for node in one.node.walk() if node.is_scalar):
        return
    filled_in, lines = _is_filled_in(file, containers), file.text.split("\n")
    for one in containers:
        names = frozenset({_INDEX}) if filled_in else one.defined
        yield from _of_command(one, names, lines)
        yield from _of_variables(one, names)


def _containers(root: Node) -> Iterator[_Container]:
    kind = text_at(root, "kind")
    given = {_INDEX, *(_OF_OPERATOR if kind is not None and kind.value == "PyTorchJob" else ())}
    for spec in pod_specs(root):
        listed = spec.get("containers")
        for node in listed.elements() if listed is not None else ():
            if node.is_map:
                yield _Container(node, frozenset(given | _own_names(node)))


def _own_names(container: Node) -> set[str]:
    """Variables of a container, except those whose own value is filled in."""
    named = [(text_at(one, "name"), text_at(one, "value")) for one in _env(container)]
    return {n.value for n, value in named if n is not None and (value is None or not _names(value.value))}


def _env(container: Node) -> list[Node]:
    listed = container.get("env")
    return [one for one in listed.elements() if one.is_map] if listed is not None else []


def _names(text: str) -> list[str]:
    return [braced or plain for braced, plain in _REFERENCE.findall(text)]


def _is_filled_in(file: File, containers: list[_Container]) -> bool:
    """Whether the file has a reference that nothing in it defines, outside of scripts: a program fills it in."""
    defined = {name for one in containers for name in one.defined} | set(_OF_SYSTEM)
    scripts = {id(word) for one in containers if one.has_shell for word in command_words(one.node)}
    for root in file.nodes:
        if root.get("data") is not None or root.get("stringData") is not None:
            continue  # files of a ConfigMap
        for node in root.walk():
            # Texts with blanks are commands and notes, which a shell may read.
            word = node.is_scalar and id(node) not in scripts and not re.search(r"\s", node.text)
            if word and not defined.issuperset(_names(node.text)):
                return True
    return False


def _of_command(container: _Container, names: frozenset[str], lines: list[str]) -> Iterator[Problem]:
    if container.has_shell:
        return
    stated = container.node.get("command")
    # The entrypoint of an image may be a shell.
    level: Level | None = None if stated is not None and stated.value else "info"
    for command in direct_commands(container.node, lines):
        for option, value in _read_options(command).items():
            used = [one for one in _names(value.value) if one in names]
            if used:
                dashes = "-" if command.program.startswith("mpi") else "--"
                yield _left_as_it_is(value, used, f"{dashes}{option} of {_called(command)}", level)
        if is_program(command):
            yield from _of_program(command)


def _read_options(command: Command) -> dict[str, Value[str]]:
    """Options that the launcher itself reads as a number or an address."""
    if command.program in ("mpirun", "mpiexec"):
        return {name: value for name, value in command.options.items() if name in ("np", "n")}
    known = command.program in ("torchrun", "accelerate", "deepspeed") or re.match("python", command.program)
    if not known or launcher_of(command)[0] is None:
        return {}
    return {name: value for name, value in own_options(command).items() if name in NUMBERS_AND_ADDRESSES}


def _called(command: Command) -> str:
    return "torchrun" if is_torchrun(command) else command.program


def _of_program(command: Command) -> Iterator[Problem]:
    """The index of a pod among the arguments of a program, which hardly ever replaces it itself."""
    for word in command.words[1:]:
        if re.fullmatch(rf"(--[\w-]+=)?\$\{{?{_INDEX}\}}?", word.value):
            yield _left_as_it_is(word, [_INDEX], f"an argument of {command.program}", "info")


def _of_variables(container: _Container, names: frozenset[str]) -> Iterator[Problem]:
    runs = " ".join(word.text for word in command_words(container.node))
    variables = [(text_at(one, "name"), text_at(one, "value")) for one in _env(container.node)]
    own = {variable.value for variable, _ in variables if variable is not None}
    earlier: set[str] = set()
    for variable, value in variables:
        if variable is None:
            continue
        if value is not None and not re.search(rf"\b{re.escape(variable.value)}=|\beval\b", runs):
            used = [name for name in _names(value.value) if name in names]
            whole = re.fullmatch(rf"\$\{{?{_INDEX}\}}?", value.value) is not None
            if used and (variable.value in _VARIABLES or whole):
                missing = [one for one in used if one not in earlier]
                fix = _of_earlier(own, variable.value, value.value, missing)
                yield _left_as_it_is(value, used, f"the variable {variable.value}", None, fix)
        earlier.add(variable.value)


def _of_earlier(own: set[str], variable: str, value: str, missing: list[str]) -> str:
    """The fix of a variable whose value names others: Kubernetes replaces those that stand above it, and controllers
    add theirs below. Empty where all stand above. `own`: the variables that the container lists itself."""
    if not missing:
        return ""
    if value.strip("${}") == variable:
        return "remove it: no variable is read from itself"
    if own.issuperset(missing):
        return f"{_written(_names(value))}, and move it below {' and '.join(missing)}"
    if re.fullmatch(rf"\$\{{?{_INDEX}\}}?", value):
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        return f'write valueFrom: {{fieldRef: {{fieldPath: "{path}"}}}} in place of value'
    return f'remove it, and let a shell set it: [sh, -c, "export {variable}={value}; …"]'


def _written(names: list[str]) -> str:
    return f"write {' and '.join(f'$({name})' for name in dict.fromkeys(names))}"


def _left_as_it_is(value: Value[str], names: list[str], what: str, level: Level | None, fix: str = "") -> Problem:
    name = names[0]
    return problem(
        value,
        f"{what} gets the letters ${name}: Kubernetes replaces $({name}) only, and no shell reads this",
        fix or _written(names),
        level=level,
        why=reasons.NO_SHELL,
    )
