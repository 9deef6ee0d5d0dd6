"""Files of variables (`cluster.env`): what a script sources, or docker reads as `--env-file`. Only those that set
variables of NCCL or libfabric are read: other `.env` files belong to other programs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import EnvVar, File, ShellScript, Value
from trainwright.spec.source import Span

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s#]*)")
_OURS = re.compile(r"^\s*(export\s+)?(NCCL|FI|OFI_NCCL|GLOO)_\w+=", re.MULTILINE)


def is_env_file(name: str, text: str) -> bool:
    return name.endswith(".env") and _OURS.search(text) is not None


def read(file: File) -> None:
    """One script without commands, whose environment is what the file sets."""
    variables = list(_variables(file.text))
    file.scripts.append(ShellScript(Span(1, 1, len(file.lines), 1), "", env=variables, kind="env"))


def _variables(text: str) -> Iterator[EnvVar]:
    for number, line in enumerate(text.split("\n"), start=1):
        match = _LINE.match(line)
        if match is None:
            continue
        written = match["value"]
        quoted = written[:1] in ("'", '"')
        first = match.start("value") + 1 + quoted
        plain = written[1:-1] if quoted else written
        value = Value(plain, Span(number, first, number, first + len(plain)), plain, known="$" not in plain)
        yield EnvVar(match["name"], value, Span(number, match.start("name") + 1, number, match.end() + 1))
