"""What a file is, from its content. A reader module offers `recognise(root) -> bool` and `read(file) -> None`; adding a
format is adding a module here."""

from __future__ import annotations

import importlib
import re
from pathlib import PurePath
from typing import Protocol, cast

from trainwright.check.model import File
from trainwright.spec.source import Node, parse

# Order matters where a file could be two things: the more particular shape first.
STRUCTURED = ("spec", "parallelcluster", "eksctl", "hyperpod", "cloudformation", "kubernetes")
_SHELL_SUFFIXES = {".sh", ".bash", ".sbatch", ".slurm"}
_SHELL_START = re.compile(r"\A#!.*\b(ba|z|k|da)?sh\b|^#SBATCH\b", re.MULTILINE)
_DOCKER_START = re.compile(r"\A(\s*(#.*)?\n)*\s*(ARG\s.*\n(\s*(#.*)?\n)*\s*)*FROM\s+\S+", re.IGNORECASE)
_YAML_SUFFIXES = {".yaml", ".yml", ".json", ".template", ".cfn"}
# Names worth opening when a folder is walked; an explicit file is always opened.
CANDIDATE_SUFFIXES = _SHELL_SUFFIXES | _YAML_SUFFIXES


def read_file(path: str, text: str) -> File | None:
    """The file read into the model, or None when it is of no kind we know."""
    kind = _textual_kind(path, text)
    if kind is not None:
        file = File(path, text, kind)
        _reader("shell").read(file)
        return file
    documents = parse(text, path)
    for kind in STRUCTURED:
        reader = _reader(kind)
        if any(reader.recognise(document) for document in documents if document.is_map):
            file = File(path, text, kind, documents)
            reader.read(file)
            return file
    return None


def _textual_kind(path: str, text: str) -> str | None:
    name = PurePath(path)
    if name.suffix in _YAML_SUFFIXES:
        return None
    if name.suffix in _SHELL_SUFFIXES or _SHELL_START.search(text[:4096]):
        return "sbatch" if re.search(r"^#SBATCH\b", text, re.MULTILINE) else "shell"
    if _DOCKER_START.match(text) and not text.lstrip().startswith("{"):
        return "dockerfile"
    return None


def looks_readable(path: PurePath) -> bool:
    """Whether a walk should open the file at all."""
    name = path.name.lower()
    return path.suffix in CANDIDATE_SUFFIXES or name.startswith("dockerfile") or name.endswith(".dockerfile")


class Reader(Protocol):
    """What a reader module offers."""

    def recognise(self, root: Node) -> bool: ...

    def read(self, file: File) -> None: ...


def _reader(kind: str) -> Reader:
    return cast(Reader, importlib.import_module(f"trainwright.check.readers.{kind}"))
