"""What the names of a Python script stand for, as far as the script shows it: which module a function comes from, and
what a name was given."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

Parents = Mapping[ast.AST, ast.AST]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)


def origin(nodes: Iterable[ast.AST], called: ast.expr) -> str:
    """The dotted name of a function with its module, from the imports; empty where no import shows it."""
    head, _, rest = ast.unparse(called).partition(".")
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                if (name.asname or name.name) == head:
                    return ".".join(part for part in ("." * node.level + (node.module or ""), name.name, rest) if part)
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.asname == head or (name.asname is None and name.name.partition(".")[0] == head):
                    return ".".join(part for part in (name.name if name.asname else head, rest) if part)
    return ""


def is_torchs(nodes: Iterable[ast.AST], called: ast.expr) -> bool:
    """Whether a class or function is one of PyTorch, or of PyTorch Geometric, whose loaders are PyTorch's."""
    return origin(nodes, called).partition(".")[0] in ("torch", "torch_geometric")


def scope_of(parents: Parents, node: ast.AST) -> ast.AST:
    """The function around a node, or the module."""
    while node in parents:
        node = parents[node]
        if isinstance(node, _SCOPES):
            return node
    return node


def bindings(parents: Parents, name: ast.expr) -> list[ast.expr | None]:
    """What a name is given in its function, or an attribute anywhere; None for each value that the script does not
    show: a parameter, a turn of a loop, a part of several values."""
    text, scope = ast.unparse(name), scope_of(parents, name)
    local = isinstance(name, ast.Name)
    values: list[ast.expr | None] = []
    for node in parents:
        if isinstance(node, ast.Global | ast.Nonlocal) and text in node.names:
            values += [None, None]
        elif _stores(node, text) and (not local or scope_of(parents, node) is scope):
            values.append(_given(parents[node], node))
    return values


def is_changed(parents: Parents, name: ast.Name) -> bool:
    """Whether something may be put into the dict of a name: its uses are other than `**name`."""
    scope = scope_of(parents, name)
    loads = (one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name.id)
    return any(
        isinstance(one.ctx, ast.Load) and not (isinstance(above := parents[one], ast.keyword) and above.arg is None)
        for one in loads
    )


def _stores(node: ast.AST, text: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == text
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node) == text


def _given(statement: ast.AST, target: ast.AST) -> ast.expr | None:
    if isinstance(statement, ast.Assign) and target in statement.targets:
        return statement.value
    if isinstance(statement, ast.AnnAssign | ast.NamedExpr):
        return statement.value
    return None


def whole_number(parents: Parents, value: ast.expr) -> int | None:
    """A number that a script writes down, itself, as a constant or as the default of an option."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, int) else None
    if isinstance(value, ast.Attribute):
        return _default_of(parents, value.attr)
    if not isinstance(value, ast.Name):
        return None
    given = bindings(parents, value) or _of_the_module(parents, value.id)
    return whole_number(parents, given[0]) if len(given) == 1 and isinstance(given[0], ast.Constant) else None


def _of_the_module(parents: Parents, name: str) -> list[ast.expr | None]:
    assigned = [
        node for node, above in parents.items() if isinstance(node, ast.Assign) and isinstance(above, ast.Module)
    ]
    return [node.value for node in assigned if name in map(ast.unparse, node.targets)]


def _default_of(parents: Parents, option: str) -> int | None:
    """The default of `--option` in the script's own parser."""
    for node in parents:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if any(name.lstrip("-").replace("-", "_") == option for name in names):
                value = next((one.value for one in node.keywords if one.arg == "default"), None)
                return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None
    return None
