"""The parts of a training step in a script: backward, clipping, the optimizer's step, in the loop or function that
holds them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwright.check.finding import Level
from trainwright.check.programs.python_names import Parents, bindings, origin, scope_of

OPTIMIZER = re.compile(r"torch\.optim\.(?!lr_scheduler\b|swa_utils\b)(\w+\.)*[A-Z]\w*")
_SCALER = re.compile(r"torch\.(\w+\.)*(GradScaler|ShardedGradScaler)")
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_UNITS = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
_ARGUMENT = ("step", "unscale_")  # of a scaler, which names the optimizer


@dataclass(frozen=True, slots=True)
class Event:
    """One part of a step: `kind` is backward, zero_grad, step, clip, unscale_ or update."""

    kind: str
    call: ast.Call
    owner: str  # what it is called of
    scaler: str = ""  # by which a step or a backward goes

    @property
    def place(self) -> tuple[int, int]:
        return self.call.end_lineno or self.call.lineno, self.call.end_col_offset or 0


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a training step does otherwise than its script says."""

    node: ast.expr
    what: str
    fix: str
    why: str
    level: Level = "warning"


@dataclass(slots=True)
class Unit:
    """The innermost loop, or else function, with the parts of a step in the order of its lines."""

    node: ast.AST
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        return [one for one in self.events if one.kind in kinds]

    @property
    def is_loop(self) -> bool:
        return isinstance(self.node, ast.For | ast.AsyncFor | ast.While)


def units(parents: Parents) -> list[Unit]:
    """The loops and functions of a script that hold a backward pass or a step."""
    by_place: dict[ast.AST, Unit] = {}
    for node in parents:
        event = _event(node) if isinstance(node, ast.Call) else None
        if event is not None:
            place = unit_of(parents, node)
            by_place.setdefault(place, Unit(place)).events.append(event)
    for unit in by_place.values():
        unit.events.sort(key=lambda one: one.place)
    return list(by_place.values())


def unit_of(parents: Parents, node: ast.AST) -> ast.AST:
    while node in parents:
        node = parents[node]
        if isinstance(node, _UNITS):
            return node
    return node


def _event(call: ast.Call) -> Event | None:
    if not isinstance(call.func, ast.Attribute):
        name = getattr(call.func, "id", "")
        return Event("clip", call, ast.unparse(call.args[0])) if name in _CLIPS and call.args else None
    name, owner = call.func.attr, call.func.value
    if name in _CLIPS:
        return Event("clip", call, ast.unparse(call.args[0]) if call.args else "")
    if name == "backward":
        scaled = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "scale"
        return Event("backward", call, "", ast.unparse(owner.func.value) if scaled else "")  # type: ignore[attr-defined]
    if name in _ARGUMENT and len(call.args) == 1 and isinstance(call.args[0], ast.Name | ast.Attribute):
        return Event(name, call, ast.unparse(call.args[0]), ast.unparse(owner))
    if name in ("zero_grad", "step", "update") and (name == "zero_grad" or not call.args):
        return Event(name, call, ast.unparse(owner))
    return None


def is_optimizer(parents: Parents, name: str) -> bool:
    """Whether every value of a name that the script shows is an optimizer of torch."""
    return _is_made(parents, name, OPTIMIZER)


def is_scaler(parents: Parents, name: str) -> bool:
    return _is_made(parents, name, _SCALER)


def made(parents: Parents, name: str) -> list[ast.Call]:
    """The calls whose results a name is given, wherever it stands in the script."""
    assigned = (node for node in parents if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    return [node.value for node in assigned if name in map(ast.unparse, node.targets)]  # type: ignore[misc]


def _is_made(parents: Parents, name: str, kind: re.Pattern[str]) -> bool:
    calls = made(parents, name)
    return bool(calls) and all(kind.fullmatch(origin(parents, one.func)) for one in calls)


def block_of(parents: Parents, node: ast.AST) -> tuple[list[ast.stmt], int]:
    """The statements among which a node's own stands, and its number there; `with` and `if` count as places."""
    while node in parents:
        above = parents[node]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(above, name, None)
            if isinstance(block, list) and node in block:
                return block, block.index(node)
        node = above
    return [], 0


def conditions(parents: Parents, node: ast.AST, unit: ast.AST) -> list[tuple[ast.AST, bool]]:
    """The branches between a node and the unit around it, with whether the node is in the body."""
    branches: list[tuple[ast.AST, bool]] = []
    while node in parents and node is not unit:
        above = parents[node]
        if isinstance(above, ast.If) and node is not above.test:
            branches.append((above, node in above.body))
        elif isinstance(above, ast.Try | ast.ExceptHandler | ast.IfExp | ast.Match) and node not in _always(above):
            branches.append((above, False))
        node = above
    return branches


def _always(node: ast.AST) -> list[ast.AST]:
    return [*getattr(node, "body", []), *getattr(node, "finalbody", [])] if isinstance(node, ast.Try) else []


def counts_steps(parents: Parents, test: ast.expr) -> bool:
    """Whether a condition holds every few turns: `(i + 1) % ACCUM == 0`, itself or by its name."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in _shown(parents, test))


def _shown(parents: Parents, test: ast.expr) -> Iterator[ast.AST]:
    for node in ast.walk(test):
        yield node
        if isinstance(node, ast.Name) and not isinstance(scope_of(parents, node), ast.Lambda):
            values = bindings(parents, node)
            if len(values) == 1 and values[0] is not None:
                yield from ast.walk(values[0])
