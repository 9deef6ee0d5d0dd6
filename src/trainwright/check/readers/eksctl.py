"""Reader in the making."""

from __future__ import annotations

from trainwright.check.model import File
from trainwright.spec.source import Node


def recognise(root: Node) -> bool:
    return False


def read(file: File) -> None:
    return None
