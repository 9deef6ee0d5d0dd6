"""The options of the programs of ours that frameworks run (`recipes/frameworks/*.py`), read from their source: those of
an entry and of the modules beside it that it imports. Nothing is imported, so that no framework is needed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from trainwright.catalog.framework_flags import Option
from trainwright.recipes.framework import FOLDER
from trainwright.recipes.model import Foreign

CODE = "{code}/"


def entry_options(trainer: Foreign) -> dict[str, Option]:
    """The options of the program of ours that a recipe starts; empty where it starts another one."""
    known = trainer.known
    words = trainer.entry or (known.entry if known is not None else ())
    ours = [word.removeprefix(CODE).removesuffix(".py") for word in words if word.startswith(CODE)]
    return _options_of(ours[0]) if ours else {}


@cache
def _options_of(module: str) -> dict[str, Option]:
    path = FOLDER / f"{module}.py"
    if not path.is_file():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    options = {option.name: option for option in _added(tree)}
    for name in _imported(tree):
        options = {**_options_of(name), **options}
    return options


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _added(tree: ast.Module) -> Iterator[Option]:
    """What the calls of `add_argument` add."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            given = {word.arg: word.value for word in node.keywords}
            kind = given["type"].id if isinstance(given.get("type"), ast.Name) else ""  # type: ignore[attr-defined]
            kind = "flag" if "action" in given else kind if kind in ("int", "float") else ""
            for name in (one.value for one in node.args if isinstance(one, ast.Constant)):
                yield Option(str(name), kind, _choices(given.get("choices")), ())


def _choices(node: ast.expr | None) -> tuple[str, ...]:
    parts = node.elts if isinstance(node, ast.Tuple) else []
    return tuple(str(one.value) for one in parts if isinstance(one, ast.Constant))
