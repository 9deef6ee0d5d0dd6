"""Whether a manifest is a part of an object for Kustomize: a patch, or a base that patches complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.check.beside import text_beside
from trainwright.check.readers.values import text_at
from trainwright.spec.source import Node, SourceError, parse

_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PATCHES = re.compile(r"^(patch\w*|replacements)\s*:", re.MULTILINE)
# What may change any object, and folders that others build on.
_CHANGES = re.compile(r"^(components|transformers)\s*:|^kind:\s*Component\b", re.MULTILINE)
_BUILT_ON = re.compile(r"(^|/)(bases?|components?)(/|$)")


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


def is_completed(path: str, kinds: set[str]) -> bool:
    """Whether the kustomization beside a file, or in the directory above, patches objects of these kinds, or is a base
    that those of other directories patch: what a file of it leaves out may be added."""
    if path == "<stdin>":
        return False
    full = os.path.abspath(path)
    texts = [text for name in _NAMES if (text := text_beside(full, name)) is not None]
    if not texts:
        return False
    if _BUILT_ON.search("/".join(os.path.dirname(full).split("/")[-2:])):
        return True
    return any(_CHANGES.search(text) or (_PATCHES.search(text) and _names_a(kinds, text, full)) for text in texts)


def _names_a(kinds: set[str], text: str, full: str) -> bool:
    """Whether a target, or a patch in a file of its own, is of one of the kinds."""
    try:
        files = [name for root in parse(text, full) if root.is_map for name in _patches(root)]
    except SourceError:
        return False
    texts = [text, *(text_beside(full, name) or "" for name in files)]
    return any(re.search(rf"kind[\"']?:\s*[\"']?({'|'.join(map(re.escape, sorted(kinds)))})\b", one) for one in texts)


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
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        listed = root.get(key)
        for one in listed.elements() if listed is not None else ():
            path = text_at(one, "path") if one.is_map else text_at(one)
            if path is not None and "\n" not in path.value:
                yield path.value
