"""Whether a manifest is a patch of Kustomize: a part of an object, whose other parts stand in the base."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainwright.check.beside import text_beside
from trainwright.check.readers.values import text_at
from trainwright.spec.source import Node, SourceError, parse

_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def is_patch(path: str) -> bool:
    """Whether the kustomization beside a file, or in the directory above, names it as a patch."""
    if path == "<stdin>":
        return False
    full = os.path.abspath(path)
    for name in _NAMES:
        text = text_beside(full, name)
        if text is not None and "patch" in text and os.path.basename(full) in text:
            return _is_named(text, full)
    return False


def is_kustomized(path: str) -> bool:
    """Whether a kustomization lies beside a file or in the directory above: it may add labels and selectors."""
    return path != "<stdin>" and any(text_beside(os.path.abspath(path), name) is not None for name in _NAMES)


def _is_named(text: str, full: str) -> bool:
    try:
        roots = [root for root in parse(text, full) if root.is_map]
    except SourceError:
        return False
    return any(full.endswith("/" + os.path.normpath(name).lstrip("./")) for root in roots for name in _patches(root))


def _patches(root: Node) -> Iterator[str]:
    for key in ("patches", "patchesStrategicMerge"):
        listed = root.get(key)
        for one in listed.elements() if listed is not None else ():
            path = text_at(one, "path") if one.is_map else text_at(one)
            if path is not None and "\n" not in path.value:
                yield path.value
