"""K8S: commands of containers that Kubernetes or a shell reads otherwise than they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import Container, File, Pod
from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import command_words
from trainwright.check.readers.values import is_placeholder
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_variables import SHELLS, unexpanded
from trainwright.check.rules.k8s_words import words_without_a_shell
from trainwright.check.rules.slu_pipes import command_before_tee
from trainwright.spec.source import Node

# Kinds that count a pod which ends with status 0 as done.
_ENDING = ("Job", "CronJob", "JobSet", "PyTorchJob", "MPIJob", "TFJob", "HyperPodPyTorchJob")
_PARAMETERS = re.compile(r"\$\{?[#!]?[\d@*#]|\bshift\b|\bgetopts\b")
_NAME_OF_SHELL = re.compile(r"[-_\s]*|argv?0?|\$0|(.*/)?(\w*sh|_)")
_OPENS = re.compile(r"[${<]")


def commands_read_otherwise(file: File) -> Iterator[Problem]:
    """Names that stay as they are, words that a shell does not read, and a status that is lost."""
    ending = (pod for pod in file.pods if pod.kind in _ENDING)
    yield from once([p for pod in ending for container in pod.containers for p in _lost_status(pod, container)])
    if file.template:
        return
    yield from unexpanded(file)
    for root in file.nodes:
        for container in (one for spec in pod_specs(root) for one in _containers(spec)):
            yield from _lost_words(container)
            yield from words_without_a_shell(container)


def _containers(spec: Node) -> list[Node]:
    listed = [spec.get(key) for key in ("containers", "initContainers")]
    return [one for node in listed if node is not None for one in node.elements() if one.is_map]


def _lost_words(container: Node) -> Iterator[Problem]:
    """`[sh, -c, torchrun, --standalone, train.py]`: the shell runs torchrun alone."""
    words = command_words(container)
    start = _script_at(words)
    if start is None or start + 1 >= len(words):
        return
    script, rest = words[start], words[start + 1 :]
    if _PARAMETERS.search(script.text) or _OPENS.match(script.text) or any(is_placeholder(w.text) for w in rest[:1]):
        return
    if _is_lost(script.text, [word.text for word in rest]):
        alone, first = (" ".join(text.split())[:40] for text in (script.text, rest[0].text))
        lost = f"{first!r} is its $0" if len(rest) == 1 else f"{first!r} and what follows are its $0, $1 …"
        yield problem(
            script,
            f"the shell runs {alone!r} alone: {lost}, which it does not read",
            "write the whole command as one text, or remove the shell and its -c",
            why=reasons.BEHIND_THE_SCRIPT,
        )


def _script_at(words: list[Node]) -> int | None:
    """Where the script of `bash -euo pipefail -c SCRIPT` stands."""
    if not words or words[0].text.rsplit("/", 1)[-1] not in SHELLS:
        return None
    index = 1
    while index < len(words) and re.match(r"[-+][A-Za-z-]", words[index].text):
        flag = words[index].text
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", flag):
            start = index + (2 if flag.endswith("o") else 1)
            return start + (start < len(words) and words[start].text == "--")  # which ends the options
        index += 2 if re.fullmatch(r"[-+][A-Za-z]*[oO]", flag) else 1
    return None


def _is_lost(script: str, rest: list[str]) -> bool:
    """Whether the words behind a script were meant to be read; one may be there to be the shell's name."""
    if len(rest) > 1:
        return True
    if _NAME_OF_SHELL.fullmatch(rest[0]):
        return False
    return not re.search(r"\s", script.strip()) or rest[0].startswith("-") or " " in rest[0].strip()


def _lost_status(pod: Pod, container: Container) -> Iterator[Problem]:
    command = command_before_tee(container.script) if container.script is not None else None
    if command is not None and "pipefail" not in container.runs:
        yield problem(
            command.words[0],
            f"the container ends with the status of tee: when {command.program} fails, the {pod.kind} counts as done",
            "run it with bash and add `set -o pipefail` before it, or leave tee out: Kubernetes keeps the output",
            level="warning",
            why=reasons.STATUS_OF_TEE_IN_POD,
        )
