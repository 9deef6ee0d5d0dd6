"""CFG: the name that a script gives to the cluster which it creates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Command, File, Value

# The program, the words that create a cluster, the options with its name, and the platform.
_CREATIONS = (
    ("pcluster", ("create-cluster",), ("cluster_name", "n"), "parallelcluster"),
    ("eksctl", ("create", "cluster"), ("name", "n"), "eksctl"),
    ("aws", ("eks", "create-cluster"), ("name",), "eks"),
    ("aws", ("sagemaker", "create-cluster"), ("cluster_name",), "hyperpod"),
)
_STAND_IN = re.compile(r"[<>{}\[\]$%@]|^[A-Z0-9_]+$|\.\.\.|…")  # for the user's own name


def created_names(file: File) -> Iterator[tuple[Value[str], str]]:
    """Names that a script states for new clusters, each with its platform."""
    for script in file.scripts:
        for command in script.commands:
            yield from _created(command)


def _created(command: Command) -> Iterator[tuple[Value[str], str]]:
    texts = [word.value for word in command.words]
    for program, wanted, options, platform in _CREATIONS:
        if command.program != program or not any(
            tuple(texts[at : at + len(wanted)]) == wanted for at in range(1, len(texts))
        ):
            continue
        name = next((command.options[option] for option in options if option in command.options), None)
        if name is None and platform == "eksctl" and len(texts) > 3 and texts[1:3] == ["create", "cluster"]:
            name = command.words[3] if not texts[3].startswith("-") else None
        if name is not None and name.value and name.known and not _STAND_IN.search(name.value):
            yield name, platform
