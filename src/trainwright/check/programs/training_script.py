"""A training script in Python as its rules see it: its tree, with the parent of every node."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from trainwright.check.model import File
from trainwright.spec.source import Span

_ALONE = re.compile(r"init_process_group\([^)]*world_size\s*=\s*1\b")  # a process group of one process
_TEST = re.compile(r"(^|/)tests?/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")


@dataclass(slots=True)
class Script:
    """A script's tree with the parent of every node."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def calls(self, name: str) -> list[ast.Call]:
        """Calls of a function, by its name and whatever stands before the dot."""
        calls = (node for node in self.parents if isinstance(node, ast.Call))
        return [node for node in calls if f".{name_of(node.func)}".endswith(f".{name}")]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node


def script_of(file: File) -> Script | None:
    """The training script; a test of a framework is none, whatever it calls."""
    if file.format != "python" or _TEST.search(file.path.replace("\\", "/")):
        return None
    return None if _ALONE.search(file.text) else _script(file.text)


def script_in(text: str) -> Script | None:
    """A script whose text is at hand, such as the program that a job starts."""
    return _script(text)


@lru_cache(maxsize=2)
def _script(text: str) -> Script | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and numbers in the script
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    script = Script(tree)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            script.parents[child] = node
    return script


def name_of(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def span_of(node: ast.expr) -> Span:
    return Span(node.lineno, node.col_offset + 1, node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1)
