"""Values of Terraform's variables: what terraform.tfvars and *.auto.tfvars beside a file set, else the default that a
file of the same directory declares. A rule then sees `var.instance_type` as the value it will have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

from trainwright.check.beside import note_listing
from trainwright.check.readers.hcl_source import Block, parse_hcl, parse_tfvars
from trainwright.spec.source import Node, SourceError, Span, read_text

_REFERENCE = re.compile(r"\$\{var\.([A-Za-z_][\w-]*)\}$")
_LARGEST = 2**20
_MODULES = "modules"  # the usual directory of modules that other configurations call
_MOST_FOLDERS = 20  # of one level


def fill_in(blocks: list[Block], path: str) -> None:
    """Replace references to variables by their values, as far as the directory states them."""
    references = [node for block in blocks for node in block.body.walk() if _name(node)]
    if not references:
        return
    values = _values(blocks, path)
    for node in references:
        value = values.get(_name(node))
        if value is not None and value.value is not None:
            copy = _moved(value, node.span)
            node.value, node.text, node.tag, node.keys = copy.value, copy.text, copy.tag, copy.keys


def _values(blocks: list[Block], path: str) -> dict[str, Node]:
    return _kept_defaults({**_beside(path), **_defaults(blocks)}, path) | _assigned(path)


def _kept_defaults(defaults: dict[str, Node], path: str) -> dict[str, Node]:
    """The defaults that nobody is known to replace: a module's caller does (`modules/eks/main.tf`), and so does a file
    of values for one environment, which the command line names."""
    folder = Path(os.path.abspath(path)).parent
    if _MODULES in folder.parts:
        return {}
    files = [file for place in _with_environments(str(folder)) for file in _files(f"{place}/x", ".tfvars")]
    given = {name for file in files for name in _read_values(file, os.stat(file).st_mtime_ns)}
    return {name: value for name, value in defaults.items() if name not in given}


def _with_environments(folder: str) -> list[str]:
    """A directory and those of the two levels below it, in which the values of an environment may lie
    (`envs/prod/terraform.tfvars`)."""
    level, places = [folder], [folder]
    for _ in range(2):
        level = [below for one in level for below in _below(one)][:_MOST_FOLDERS]
        places += level
    for place in places:
        note_listing(place)
    return places


def _below(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(one.path for one in entries if one.is_dir() and not one.name.startswith("."))
    except OSError:
        return []


def _name(node: Node) -> str:
    match = _REFERENCE.match(node.text) if node.is_scalar and node.tag == "expression" else None
    return match[1] if match is not None else ""


def _moved(node: Node, span: Span) -> Node:
    """The same value, at the place of the reference: its own place is in another file."""
    value = node.value
    if node.is_list:
        value = [_moved(one, span) for one in value]
    elif node.is_map:
        value = {key: _moved(one, span) for key, one in value.items()}
    return Node(value, span, node.text, node.tag, dict.fromkeys(node.keys, span))


def _defaults(blocks: list[Block]) -> dict[str, Node]:
    variables = (block for block in blocks if block.kind == "variable" and block.labels)
    return {block.name: default for block in variables if (default := block.body.get("default")) is not None}


def _beside(path: str) -> dict[str, Node]:
    """Defaults that other files of the directory declare."""
    values: dict[str, Node] = {}
    for name in _others(path):
        values |= _read_defaults(name, os.stat(name).st_mtime_ns)
    return values


def _assigned(path: str) -> dict[str, Node]:
    """What the files of values set, in the order in which Terraform reads them."""
    names = [name for name in _files(path, "terraform.tfvars") if name.endswith("/terraform.tfvars")]
    values: dict[str, Node] = {}
    for name in [*names, *_files(path, ".auto.tfvars")]:
        values |= _read_values(name, os.stat(name).st_mtime_ns)
    return values


def _files(path: str, suffix: str) -> list[str]:
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with os.scandir(folder) as entries:
            return sorted(
                one.path
                for one in entries
                if one.name.endswith(suffix) and one.is_file() and one.stat().st_size < _LARGEST
            )
    except OSError:
        return []


@lru_cache(maxsize=256)
def _read_defaults(path: str, _changed: int) -> dict[str, Node]:
    try:
        return _defaults(parse_hcl(read_text(Path(path)), path))
    except SourceError:
        return {}  # reported where that file itself is checked


@lru_cache(maxsize=64)
def _read_values(path: str, _changed: int) -> dict[str, Node]:
    try:
        return dict(parse_tfvars(read_text(Path(path)), path).items())
    except SourceError:
        return {}


def is_written_beside(path: str, pattern: re.Pattern[str]) -> bool:
    """Whether another file of the directory, which Terraform reads together with this one, holds a text."""
    return any(map(pattern.search, texts_beside(path)))


def texts_beside(path: str) -> Iterator[str]:
    """The other files of the directory."""
    return (_text(name, os.stat(name).st_mtime_ns) for name in _others(path))


def _others(path: str) -> list[str]:
    return [name for name in _files(path, ".tf") if name != os.path.abspath(path)] if path != "<stdin>" else []


def blocks_beside(path: str, pattern: re.Pattern[str]) -> list[Block]:
    """The blocks of the other files of the directory that hold a text; none of those that cannot be read."""
    states = [(name, os.stat(name).st_mtime_ns) for name in _others(path)]
    return [block for name, at in states if pattern.search(_text(name, at)) for block in _read_blocks(name, at)]


def resources_beside(path: str, pattern: re.Pattern[str]) -> list[Block]:
    """The resources of the other files of the directory that hold a text."""
    return [one for one in blocks_beside(path, pattern) if one.kind == "resource" and len(one.labels) == 2]


def filled(text: str, path: str) -> list[Block]:
    """The blocks of a file with the values of its variables."""
    blocks = parse_hcl(text, path)
    fill_in(blocks, path)
    return blocks


def filled_beside(path: str) -> list[Block]:
    """The blocks of the other files of the directory; none of those that cannot be read."""
    blocks = []
    for name in _others(path):
        try:
            blocks += filled(_text(name, os.stat(name).st_mtime_ns), name)
        except SourceError:
            continue  # reported where that file itself is checked
    return blocks


class NamedValues:
    """What `local.cards` or `var.cards` is in the files of a directory; None where they do not state it. `blocks` are
    those of the file at hand, whose text an editor may not have saved."""

    def __init__(self, blocks: list[Block], path: str) -> None:
        self._blocks, self._path = blocks, path

    def __call__(self, name: str) -> Node | None:
        kind, _, key = name.partition(".")
        if kind == "var":
            return self._variables.get(key)
        stated = self._locals.get(key, [])
        return stated[0] if len(stated) == 1 else None

    @cached_property
    def _variables(self) -> dict[str, Node]:
        return _values(self._blocks, self._path)

    @cached_property
    def _locals(self) -> dict[str, list[Node]]:
        stated: dict[str, list[Node]] = {}
        for block in (*filled_beside(self._path), *self._blocks):
            for key, value in block.body.items() if block.kind == "locals" else ():
                stated.setdefault(key, []).append(value)
        return stated


@lru_cache(maxsize=256)
def _read_blocks(path: str, changed: int) -> tuple[Block, ...]:
    try:
        return tuple(parse_hcl(_text(path, changed), path))
    except SourceError:
        return ()


@lru_cache(maxsize=64)
def _text(path: str, _changed: int) -> str:
    try:
        return read_text(Path(path))
    except SourceError:
        return ""


def declared(path: str) -> frozenset[str]:
    """The variables that the configuration of a .tfvars file declares: of its directory, or of the one above it
    (`-var-file=environments/prod.tfvars`). Empty where a file that may declare others is not read."""
    for folder in Path(os.path.abspath(path)).parents[:2]:  # what the cache watches
        inside = str(folder / "x")
        if _files(inside, "terragrunt.hcl") or _files(inside, ".tofu") or _files(inside, ".tofu.json"):
            return frozenset()
        files = [*_files(inside, ".tf"), *_files(inside, ".tf.json")]
        if files:
            names = [_names(file, os.stat(file).st_mtime_ns) for file in files]
            return frozenset() if None in names else frozenset(name for part in names if part for name in part)
    return frozenset()


@lru_cache(maxsize=256)
def _names(path: str, _changed: int) -> tuple[str, ...] | None:
    """The variables that a file declares; None where that cannot be read."""
    try:
        blocks = parse_hcl(read_text(Path(path)), path) if path.endswith(".tf") else None
    except SourceError:
        return None
    return tuple(b.name for b in blocks if b.kind == "variable" and b.labels) if blocks is not None else None
