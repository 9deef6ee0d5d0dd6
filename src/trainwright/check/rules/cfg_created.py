"""CFG: the name that a script gives to the cluster which it creates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.beside import file_beside
from trainwright.check.model import Command, File, Value

# The program, the words that create a cluster, the options with its name, and the platform.
_CREATIONS = (
    ("pcluster", ("create-cluster",), ("cluster_name", "n"), "parallelcluster"),
    ("eksctl", ("create", "cluster"), ("name", "n"), "eksctl"),
    ("aws", ("eks", "create-cluster"), ("name",), "eks"),
    ("aws", ("sagemaker", "create-cluster"), ("cluster_name",), "hyperpod"),
)
_CONFIGURATIONS = ("cluster_configuration", "c")
_STAND_IN = re.compile(r"[<>{}\[\]$%@]|^[A-Z0-9_]+$|\.\.\.|…")  # for the user's own name


def created_names(file: File) -> Iterator[tuple[Value[str], str, bool]]:
    """Names that a script states for new clusters, each with its platform, and whether Slurm keeps accounts there."""
    for script in file.scripts:
        for command in script.commands:
            for name, platform in _created(command):
                yield name, platform, platform == "parallelcluster" and _keeps_accounts(file, command)


def _keeps_accounts(file: File, command: Command) -> bool:
    """Whether the configuration that the command names has an accounting database."""
    named = next((command.options[one] for one in _CONFIGURATIONS if one in command.options), None)
    other = file_beside(file.path, named.value) if named is not None and named.known else None
    return other is not None and any(cluster.database is not None for cluster in other.clusters)


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
