"""K8S: words of a container's command that only a shell takes apart or carries out, where no shell runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.check import reasons
from trainwright.check.readers.kubernetes_pods import command_words
from trainwright.check.readers.values import is_placeholder
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_variables import SHELLS
from trainwright.spec.source import Node

_WHOLE_LINE = re.compile(r"[\w.~-][\w./~-]*\s+\S|[\w./-]+\s+-")  # a path may have a blank: /opt/my tools/start
_NEEDS_SHELL = re.compile(r"[&|;<>$*]|^(cd|source|export)\s")
_WORDS_OF_SHELL = ("while", "for", "if", "until", "case", "export", "source", "alias", "unset", "ulimit", "set")
# Programs that take their arguments as they are: a script of one's own may pass them to a shell.
_PROGRAM = re.compile(r"(\S*/)?(python[\d.]*|torchrun|accelerate|deepspeed|composer|mpirun|vllm|pip3?|nvidia-smi)")
_OF_SHELL = ("&&", "||", ">>", "2>&1", "&>")
_JOINED = re.compile(r"--[A-Za-z][\w-]*[ \t]+\S+")
_OPTION = re.compile(r"-[^=]*")  # that takes the next word
_OF_BASH = re.compile(r"\bsource\b|\[\[|pipefail|[<>]\(|&>")
_AS_ARGUMENT = "the program gets it as an argument: argparse ends with `unrecognized arguments`."


def words_without_a_shell(container: Node) -> Iterator[Problem]:
    """`[while, true, …]`, `["torchrun train.py"]`, `[python, a.py, "&&", …]`, `[python, a.py, "--lr 0.1"]`."""
    stated = container.get("command")
    first = next(iter(stated.elements()), None) if stated is not None else None
    if first is None or is_placeholder(first.text):
        return
    if _WHOLE_LINE.match(first.text):
        said = f"a container's program cannot be the whole line {' '.join(first.text.split())[:40]!r}"
        args = container.get("args")
        shell = "bash" if _OF_BASH.search(first.text) else "sh"  # which small images have
        fix = f'write [{shell}, -c, "…"] around it'
        fix += ", with args in the same text" if args is not None and args.value else ""
        fix = fix if _NEEDS_SHELL.search(first.text) else f"write each word as an element of its own, or {fix[6:]}"
        yield problem(first, f"{said}: it does not start", fix, why=reasons.NO_SUCH_PROGRAM)
    elif first.text in _WORDS_OF_SHELL:
        said = f"{first.text} is a word of the shell, not a program: the container does not start"
        fix = 'write [sh, -c, "…"] with the whole command as one text'
        yield problem(first, said, fix, why=reasons.NO_SUCH_PROGRAM)
    elif _PROGRAM.fullmatch(first.text):
        yield from _arguments(command_words(container))


def _arguments(words: list[Node]) -> Iterator[Problem]:
    """The first word that is not taken as it is meant."""
    if any(word.text.rsplit("/", 1)[-1] in SHELLS for word in words):
        return
    program = words[0].text.rsplit("/", 1)[-1]
    for before, word in pairwise(words):
        if word.text in _OF_SHELL:
            said = f"{word.text} is for a shell, and none runs: {program} gets it as an argument"
            fix = 'write [sh, -c, "…"] with the whole command as one text'
            yield problem(word, said, fix, level="warning", why=_AS_ARGUMENT)
            return
        if _JOINED.fullmatch(word.text) and not _OPTION.fullmatch(before.text) and not is_placeholder(word.text):
            option, value = word.text.split(None, 1)
            said = f"{word.text!r} is one word: {program} has no option of this name"
            fix = f"write {option}={value}, or two elements"
            if any(_JOINED.fullmatch(other.text) for other in words if other is not word):
                fix = "write each option of the list as --name=value, or as two elements"
            yield problem(word, said, fix, level="warning", why=_AS_ARGUMENT)
            return
