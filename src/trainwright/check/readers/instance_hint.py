"""The instance type a script is for, where it states one: a variable, a node feature, a comment in its header."""

from __future__ import annotations

import re

from trainwright.catalog.instances import find_instance
from trainwright.check.model import ShellScript, Value
from trainwright.spec.source import Span

_TYPE = re.compile(
    r"(?<![\w.-])(?:ml\.)?((?:p|g|trn|inf|c|m|r|hpc)\d[a-z]*(?:-[a-z]+\d+)?\.(?:\d*x?large|metal))(?![\w]|\.\w)", re.I
)
_NAMES = re.compile(r"^(EC2_)?INSTANCE(_TYPE)?$", re.I)
# A comment that explains how to change the file names a type the file is not for.
_CHOICE = re.compile(r"\b(if|change|set|when|for example|e\.g|or|not|use|instead|only)\b", re.I)
# A comment about another machine of the cluster than those that run the job.
_OTHER_MACHINE = re.compile(r"\b(head|login|controller|bastion|submit|management)[- _]?(node|host|instance)", re.I)
# A script for several clouds is not for the one type of AWS that it names.
_OTHER_CLOUD = re.compile(r"\bGCP\b|\bGKE\b|\ba[234]-\w+gpu|\bAzure\b|\bND[a-z]*\d|RunPod|CoreWeave|Nebius", re.I)
# Where the clause ends that names the type: what follows says something else.
_CLAUSE_END = re.compile(r"[,;:.](?=\s|$)")
_DIRECTIVES = ("constraint", "partition", "comment")


def instance_of(script: ShellScript) -> Value[str] | None:
    """The one type the script names as its own; None when it names none, or several."""
    types = [*_from_variables(script), *_from_directives(script)] or _from_header(script)
    names = {value.value.lower().removeprefix("ml.") for value in types}
    return types[0] if len(names) == 1 and find_instance(types[0].value) is not None else None


def _from_variables(script: ShellScript) -> list[Value[str]]:
    return [
        a.value for a in script.assignments if _NAMES.match(a.name) and a.value.known and _TYPE.match(a.value.value)
    ]


def _from_directives(script: ShellScript) -> list[Value[str]]:
    types = []
    for name, value in script.directives:
        match = _TYPE.search(value.value) if name in _DIRECTIVES else None
        if match is not None:
            types.append(Value(match[1], value.span, match[1]))
    return types


def _from_header(script: ShellScript) -> list[Value[str]]:
    """Types that the comments before the first command name."""
    first = min((c.span.line for c in script.commands), default=10**9)
    first = min([first, *(a.span.line for a in script.assignments)])
    named = []
    for line, text in script.comments.items():
        if line >= first or text.startswith("SBATCH") or "expect:" in text:
            continue
        if _OTHER_CLOUD.search(text):
            return []
        types = list(_TYPE.finditer(text)) if not _OTHER_MACHINE.search(text) else []
        if types and _CHOICE.search(_to_the_clause_end(text, types[-1].end())):
            return []
        named += [Value(m[1], Span(line, 1, line, 1), m[1]) for m in types]
    return named


def _to_the_clause_end(text: str, position: int) -> str:
    end = _CLAUSE_END.search(text, position)
    return text[: end.start()] if end is not None else text
