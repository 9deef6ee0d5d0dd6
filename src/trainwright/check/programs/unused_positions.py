"""Epochs and steps that a script reads from its checkpoint, and loops that start at 0 all the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, scope_of
from trainwright.check.programs.resumes import POSITION, loaded_into, reads_position, returned_positions
from trainwright.check.programs.training_steps import Mistake

_PRINTS = re.compile(r"print|info|debug|warning|log\w*|write|format|set_description", re.IGNORECASE)
_Place = ast.Name | ast.Attribute


def unused_positions(parents: Parents) -> Iterator[Mistake]:
    """An epoch that is read from the checkpoint, and a loop over epochs that starts at 0 all the same."""
    loaded = {name for node in parents for name in loaded_into(parents, node)}
    returned = returned_positions(parents, loaded)
    for node in (one for one in parents if isinstance(one, ast.Assign)):
        for name, value in _positions(node, loaded, returned):
            if "best" in ast.unparse(name):
                continue
            own = isinstance(name, ast.Name)
            scope = scope_of(parents, name) if own else _class_of(parents, name)
            loop = _loop_from_zero(parents, scope, node.lineno if own else 0, ast.unparse(name) + value)
            if loop is not None and not _is_used(parents, scope if own else None, name, loop):
                yield _mistake(name, loop, adds=re.search(r"\+ 1\b", ast.unparse(node.value)) is not None)


def _mistake(name: _Place, loop: ast.For, *, adds: bool) -> Mistake:
    place, counted = ast.unparse(name), _counted(loop)
    what = f"{place} is read from the checkpoint in line {name.lineno}, and this loop starts at 0 all the same"
    fix = f"write range({place}, {ast.unparse(counted) if counted is not None else '…'})"
    fix += "" if adds else "; add 1 where the saved number is of a finished epoch"
    level: Level = "warning" if isinstance(name, ast.Name) else "info"  # another file may read the attribute
    return Mistake(loop.iter, what, fix, reasons.EPOCH_NOT_USED, level)


def _positions(
    node: ast.Assign, loaded: set[str], returned: dict[str, dict[int | None, str]]
) -> Iterator[tuple[_Place, str]]:
    """The names that an assignment gives a number of the checkpoint, each with what it is read from."""
    target, value = node.targets[0], node.value
    if len(node.targets) != 1:
        return
    if isinstance(target, _Place) and reads_position(value, loaded):
        yield target, ast.unparse(value)
    made = value.body if isinstance(value, ast.IfExp) else value
    places = returned.get(last(made), {}) if isinstance(made, ast.Call) and _is_own(made) else {}
    if isinstance(target, _Place) and None in places:
        yield target, places[None]
    for at, one in enumerate(target.elts) if isinstance(target, ast.Tuple) else ():
        if at in places and isinstance(one, _Place):
            yield one, places[at]


def _is_own(call: ast.Call) -> bool:
    """Whether a call is of a function or method of the script, as far as its name shows."""
    return ast.unparse(call.func) in (last(call), f"self.{last(call)}")


def _class_of(parents: Parents, node: ast.AST) -> ast.AST:
    while node in parents and not isinstance(node, ast.ClassDef):
        node = parents[node]
    return node


def _loop_from_zero(parents: Parents, scope: ast.AST, line: int, words: str) -> ast.For | None:
    """The training loop below a line, over the same kind of number, that counts from 0."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.For) or node.lineno < line or _counted(node) is None:
            continue
        if _units(ast.unparse(node.target)) & _units(words) and _trains(parents, node):
            return node
    return None


def _counted(loop: ast.For) -> ast.expr | None:
    """The number up to which a loop counts from 0."""
    call = loop.iter
    if isinstance(call, ast.Call) and last(call) == "tqdm" and call.args:
        call = call.args[0]
    if not isinstance(call, ast.Call) or last(call) not in ("range", "trange"):
        return None
    from_zero = len(call.args) == 2 and getattr(call.args[0], "value", None) == 0
    return call.args[-1] if len(call.args) == 1 or from_zero else None


def _trains(parents: Parents, loop: ast.For) -> bool:
    """Whether a loop holds a backward pass, itself or in a function of the script that it calls."""
    calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call)]
    if any(last(one) == "backward" for one in calls):
        return True
    called = {last(one) for one in calls if _is_own(one)}
    functions = (one for one in parents if isinstance(one, ast.FunctionDef) and one.name in called)
    return any(isinstance(one, ast.Call) and last(one) == "backward" for node in functions for one in ast.walk(node))


def _units(text: str) -> set[str]:
    return {word.lower() for word in POSITION.findall(text)}


def _is_used(parents: Parents, scope: ast.AST | None, name: _Place, loop: ast.For) -> bool:
    """Whether anything but a print reads a name; one that the loop itself counts is lost at its first turn."""
    text = ast.unparse(name)
    own = ast.unparse(loop.target) == text
    for node in ast.walk(scope) if scope is not None else parents:
        if isinstance(node, ast.Global | ast.Nonlocal) and text in node.names:
            return True
        if not isinstance(node, _Place) or not isinstance(node.ctx, ast.Load):
            continue
        same = node.id == text if isinstance(node, ast.Name) else node.attr == getattr(name, "attr", "")
        if same and not (own and node.lineno > loop.lineno) and not _is_printed(parents, node):
            return True
    return False


def _is_printed(parents: Parents, node: ast.AST) -> bool:
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
        if isinstance(node, ast.Call):
            return _PRINTS.fullmatch(last(node)) is not None
    return False
