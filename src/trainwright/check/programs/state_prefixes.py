"""Weights that a script saves with `module.` before their keys, and loads without it, or the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, bindings, scope_of
from trainwright.check.programs.resumes import POSITION, loaded_into
from trainwright.check.programs.training_steps import Mistake, made
from trainwright.check.programs.wrapped_models import wrapped

_PREFIX = re.compile(
    r"[\"']module\.|consume_prefix|strict\s*=\s*False|removeprefix|lstrip|hasattr\(\w+, *[\"']module|\[(7:|len\()"
)
_CHANGES = ("pop", "popitem", "update", "setdefault", "clear")
_READS = ("load_state_dict", "print", "len", "list", "sorted", "isinstance", "type")
_MOVED = re.compile(r"(\.(to|cuda|train)\([^()]*\))+$")
_OF_THE_RUN = re.compile(r"^opt|optim|sched", re.IGNORECASE)
_SEVERAL = 2  # values of a name: a model, and the same one wrapped


@dataclass(frozen=True, slots=True)
class _State:
    """A call of state_dict or load_state_dict, the key of its part, and whether the keys in it have the prefix."""

    call: ast.Call
    key: str
    prefixed: bool
    direct: bool  # by the name that the wrapped model has there, not by a parameter or in another function


def mismatched_prefixes(parents: Parents, text: str) -> Iterator[Mistake]:
    """Parts of the script's own checkpoint that do not fit the model which they are loaded into."""
    if "DistributedDataParallel" not in text or _PREFIX.search(text) or "torch.save" not in text:
        return
    models = {name: one for name, one in wrapped(parents).items() if len(made(parents, name)) <= _SEVERAL}
    calls = [node for node in parents if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    saves = [one for call in calls if last(call) == "state_dict" for one in _saved_part(parents, models, call)]
    for load in (one for call in calls if last(call) == "load_state_dict" for one in _loaded(parents, models, call)):
        same = [one for one in saves if one.key == load.key]
        if not same or any(one.prefixed == load.prefixed for one in same):
            continue
        saved, into = same[0].call, _owner(load.call).removesuffix(".module")
        name = _owner(saved).removesuffix(".module")
        what = (
            f"a resume fails: {ast.unparse(saved.func)} is saved, whose keys differ from those of {_owner(load.call)}"
        )
        fix = f"save {name}.module.state_dict(), and load it into {into} before it is wrapped, or {into}.module"
        at = saved if same[0].prefixed and name != into else load.call
        what += f" in line {load.call.lineno}" if at is saved else " in this line"
        level: Level = "warning" if load.direct and same[0].direct else "info"
        yield Mistake(at.func, what, fix, reasons.PREFIX_MISMATCH, level)


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[0]


def _saved_part(parents: Parents, models: dict[str, tuple[str, ast.Call]], call: ast.Call) -> Iterator[_State]:
    key = _key_of(parents, call)
    above = parents[call]
    if key is None and isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        scope, name = scope_of(parents, call), above.targets[0].id
        uses = [
            one
            for one in ast.walk(scope)
            if isinstance(one, ast.Name) and one.id == name and one is not above.targets[0]
        ]
        key = _key_of(parents, uses[0]) if len(uses) == 1 else None
    prefixed = _prefixed(parents, models, call.func.value) if key is not None else None  # type: ignore[attr-defined]
    if key is not None and prefixed is not None:
        yield _State(call, key, *prefixed)


def _key_of(parents: Parents, value: ast.expr) -> str | None:
    """The key under which a dict holds a value."""
    above = parents[value]
    key: ast.expr | None = None
    if isinstance(above, ast.Dict) and value in above.values:
        key = above.keys[above.values.index(value)]
    elif isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Subscript):
        key = above.targets[0].slice
    elif isinstance(above, ast.keyword) and isinstance(parents[above], ast.Call):
        return above.arg if last(parents[above]) == "dict" else None  # type: ignore[arg-type]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _loaded(parents: Parents, models: dict[str, tuple[str, ast.Call]], call: ast.Call) -> Iterator[_State]:
    """A part of the script's own checkpoint: one that the optimizer or the epoch is read from, too."""
    part = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if isinstance(part, ast.Name):
        given = bindings(parents, part)
        part = given[0] if len(given) == 1 else None
    loaded = {name for node in parents for name in loaded_into(parents, node)}
    if any(_is_changed(parents, call, one) for one in (*call.args, part) if one is not None):
        return
    if not isinstance(part, ast.Subscript) or ast.unparse(part.value) not in loaded:
        return
    key = part.slice.value if isinstance(part.slice, ast.Constant) else None
    keys = [
        one.slice.value
        for one in ast.walk(scope_of(parents, call))
        if isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Constant)
        and ast.unparse(one.value) == ast.unparse(part.value)
    ]
    resumes = any(isinstance(one, str) and (_OF_THE_RUN.search(one) or POSITION.search(one)) for one in keys)
    prefixed = _prefixed(parents, models, call.func.value) if resumes else None  # type: ignore[attr-defined]
    if isinstance(key, str) and prefixed is not None:
        yield _State(call, key, *prefixed)


def _is_changed(parents: Parents, load: ast.Call, part: ast.expr) -> bool:
    """Whether something may change the keys of a dict in the function, other than the call that loads them."""
    text = ast.unparse(part)
    for node in ast.walk(scope_of(parents, load)):
        if not isinstance(node, ast.Name | ast.Subscript) or node is part or ast.unparse(node) != text:
            continue
        above = parents[node]
        if isinstance(above, ast.Subscript) and not isinstance(above.ctx, ast.Load) and above.value is node:
            return True
        if isinstance(above, ast.Attribute) and above.attr in _CHANGES:
            return True
        given = isinstance(above, ast.Call) and node in above.args and above is not load
        if given and last(above) not in _READS:  # type: ignore[arg-type]
            return True
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return True
    return False


def _prefixed(
    parents: Parents, models: dict[str, tuple[str, ast.Call]], model: ast.expr, depth: int = 2
) -> tuple[bool, bool] | None:
    """Whether the keys of a model have the prefix, and whether that is plain; None where the script does not decide."""
    if isinstance(model, ast.Attribute) and model.attr == "module":
        outer = _prefixed(parents, models, model.value, depth)
        return (False, outer[1]) if outer is not None and outer[0] else None
    function, name = scope_of(parents, model), ast.unparse(model)
    parameters = [one.arg for one in function.args.args] if isinstance(function, ast.FunctionDef) else []
    if name in parameters and isinstance(function, ast.FunctionDef):
        given = _given(parents, function, parameters.index(name), name) if depth else []
        kinds = {_prefixed(parents, models, one, depth - 1) if one is not None else None for one in given}
        prefixes = {kind[0] if kind is not None else None for kind in kinds}
        only = prefixes.pop() if len(prefixes) == 1 else None
        return (only, False) if only is not None else None
    for outer_name, (inner, wrap) in models.items():
        held = _MOVED.sub("", inner)
        here = scope_of(parents, wrap) is function
        if not here and isinstance(model, ast.Name) and not isinstance(scope_of(parents, wrap), ast.Module):
            continue
        if name in (outer_name, held) and outer_name != held:
            return name == outer_name, here
        if name == outer_name:
            after = model.lineno > wrap.lineno if here else _is_called_after(parents, function, wrap)
            return (after, here) if after is not None else None
    return None


def _given(parents: Parents, function: ast.FunctionDef, at: int, name: str) -> list[ast.expr | None]:
    """What the calls of a function give to one of its parameters."""
    own = (function.name, f"self.{function.name}")
    calls = [node for node in parents if isinstance(node, ast.Call) and ast.unparse(node.func) in own]
    at -= isinstance(parents[function], ast.ClassDef)
    words = ({word.arg: word.value for word in call.keywords} for call in calls)
    return [
        word.get(name, call.args[at] if 0 <= at < len(call.args) else None)
        for call, word in zip(calls, words, strict=True)
    ]


def _is_called_after(parents: Parents, function: ast.AST, wrap: ast.Call) -> bool | None:
    """Whether a function runs when the model is wrapped, or before; None where the script does not say."""
    name = getattr(function, "name", "")
    scope = scope_of(parents, wrap)
    calls = [node for node in parents if isinstance(node, ast.Call) and last(node) == name]
    here = {node.lineno > wrap.lineno for node in calls if scope_of(parents, node) is scope}
    if here:
        return here.pop() if len(here) == 1 and len(calls) == 1 else None
    return True if getattr(scope, "name", "") == "__init__" and calls else None
