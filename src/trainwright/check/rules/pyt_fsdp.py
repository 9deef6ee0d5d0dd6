"""PYT: optimizers that hold parameters which FSDP has replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from trainwright.check.model import File
from trainwright.check.programs.python_names import bindings, origin, scope_of
from trainwright.check.programs.training_script import Script, name_of, script_of, span_of
from trainwright.check.programs.training_steps import OPTIMIZER
from trainwright.check.registry import Problem, problem, rule

_WRAPS = re.compile(r"\bFullyShardedDataParallel\b|\bFSDP\b|\bfully_shard\b")
_FSDP = re.compile(r"torch\.distributed\.(_composable\.)?fsdp\b.*\.(FullyShardedDataParallel|fully_shard)")
_SAME_MODEL = {
    "to",
    "cuda",
    "train",
    "eval",
    "cpu",
    "bfloat16",
    "half",
    "float",
}  # methods that return the model itself
_KEEPS = ("ignored_modules", "ignored_parameters", "ignored_states", "ignored_params")
_PARAMETERS = ("parameters", "named_parameters")
_LISTS = {
    "list", "tuple", "set", "iter", "filter", "reversed", "enumerate", "dict", "chain", "itertools.chain",
    "chain.from_iterable", "itertools.chain.from_iterable",
}  # fmt: skip
_REPLACED = ("param_groups", "add_param_group")
_Named = ast.Name | ast.Attribute
_POSITIONAL = 7  # of FSDP's arguments, before those that decide here


@rule("PYT005", "error")
def optimizer_holds_what_is_trained(file: File) -> Iterator[Problem]:
    """The optimizer must be built after FSDP has wrapped the model.

    `torch.optim.AdamW(model.parameters())` above `FSDP(model)` or `fully_shard(model)` in the same function, one after
    the other. FullyShardedDataParallel joins the parameters to flat ones, and `fully_shard` makes new ones of DTensors:
    the optimizer keeps the old ones, which get no gradient. Not reported: `use_orig_params=True`, with which
    FullyShardedDataParallel keeps the parameters; modules that it is told to ignore; an optimizer that is built again.
    Where a function of the script builds the optimizer or wraps the model, it is a note.

    Why: `optimizer.step()` changes 0 of the parameters that the model computes with, and ends without an error: the
    loss stays where it was, on all GPUs, until somebody looks.

    Fix: wrap the model first, then build the optimizer from `model.parameters()`.

    Source: PyTorch, FullyShardedDataParallel and fully_shard; tried with torch 2.13.

    When to ignore: the steps of the script are not meant to train, as in a benchmark of the backward pass.
    """
    script = script_of(file) if file.format == "python" and _WRAPS.search(file.text) else None
    for block in _blocks(script) if script is not None else ():
        yield from _stale(script, block)  # type: ignore[arg-type]


def _blocks(script: Script) -> Iterator[list[ast.stmt]]:
    """The lists of statements that run one after the other."""
    for node in [script.tree, *script.parents]:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and len(block) > 1:
                yield block


def _stale(script: Script, block: list[ast.stmt]) -> Iterator[Problem]:
    built: dict[str, tuple[ast.Name | ast.Attribute, ast.Call]] = {}  # the optimizer of each model
    for statement in block:
        call = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(call, ast.Call) and len(targets) == 1 and isinstance(targets[0], _Named):
            for model in _models_of(script, call):
                built[model] = targets[0], call
        wrapped = (
            _wrapped(script, call) or _wrapped_inside(script, call) if isinstance(call, ast.Call) and built else ""
        )
        if wrapped in built:
            optimizer, made = built.pop(wrapped)
            if _is_kept(script, optimizer):
                yield _problem(script, optimizer, made, call)  # type: ignore[arg-type]
        for name in _given_anew(statement):
            built.pop(name, None)


def _problem(script: Script, optimizer: ast.Name | ast.Attribute, made: ast.Call, wrap: ast.Call) -> Problem:
    given = (node.attr for node in ast.walk(made) if isinstance(node, ast.Attribute))
    lists = "" if set(_PARAMETERS) & set(given) else " with the lists of parameters that it is given"
    name, line = ast.unparse(optimizer), wrap.lineno
    what = f"{name} holds parameters that {ast.unparse(wrap.func)} replaces in line {line}: its steps train nothing"
    own = {one.name for one in script.parents if isinstance(one, ast.FunctionDef)}
    helped = any(isinstance(one, ast.Call) and name_of(one.func) in own for one in (wrap, *ast.walk(made)))
    fix = f"build it below line {line}{lists and ',' + lists}"
    reads = (node for node in script.parents if isinstance(node, _Named) and isinstance(node.ctx, ast.Load))
    if any(ast.unparse(node) == name and made.lineno <= node.lineno < line for node in reads):
        fix += ", and what is built from it below that"
    return problem(span_of(made.func), what, fix, level="info" if helped else None)


def _models_of(script: Script, call: ast.Call) -> list[str]:
    """The models whose parameters an optimizer is given."""
    if not _is_optimizer(script, call):
        return list(_of_function(script, call, _is_optimizer))
    return list(_read_by(script, call))


def _is_optimizer(script: Script, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and OPTIMIZER.fullmatch(origin(script.parents, value.func)) is not None


def _is_list(_script: Script, value: ast.expr) -> bool:
    return isinstance(value, ast.List | ast.ListComp | ast.Name)


def _of_function(script: Script, call: ast.Call, kind: Callable[[Script, ast.expr], bool]) -> Iterator[str]:
    """The models that a call gives to a function of the script which returns nothing but values of their parameters."""
    functions = [one for one in script.parents if isinstance(one, ast.FunctionDef) and one.name == name_of(call.func)]
    names = [one.arg for one in functions[0].args.args] if len(functions) == 1 else []
    inside = ast.walk(functions[0]) if names else ()
    returned = [one.value for one in inside if isinstance(one, ast.Return) and one.value is not None]
    if len(returned) == 1 and kind(script, returned[0]):
        read = set(_read_by(script, returned[0], 2))
        given = {**dict(zip(names, call.args, strict=False)), **{word.arg or "": word.value for word in call.keywords}}
        yield from (ast.unparse(value) for name, value in given.items() if name in read)


def _read_by(script: Script, value: ast.AST | None, depth: int = 3) -> Iterator[str]:
    """The models whose parameters are in a list, itself or by the names in it; not those of which it only asks the
    sizes, the number or the ids."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as model, attr=method)) if (
            method in _PARAMETERS
        ):
            yield ast.unparse(model)
        case ast.Call(func=ast.Attribute(value=inner, attr="values" | "items")):
            yield from _read_by(script, inner, depth)
        case ast.Call() if name_of(value.func) in _LISTS or _is_optimizer(script, value):
            given = [word.value for word in value.keywords if word.arg == "params"]
            for one in [*value.args, *given]:
                yield from _read_by(script, one, depth)
        case ast.Call() if depth:
            yield from _of_function(script, value, _is_list)
        case ast.List() | ast.Tuple() | ast.Set():
            for one in value.elts:
                yield from _read_by(script, one, depth)
        case ast.Dict():
            for key, one in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "params":
                    yield from _read_by(script, one, depth)
        case ast.ListComp(elt=one) | ast.SetComp(elt=one) | ast.GeneratorExp(elt=one) | ast.DictComp(value=one):
            yield from _read_by(script, one, depth)
        case ast.Starred(value=one) | ast.BinOp(left=one, op=ast.Sub()):
            yield from _read_by(script, one, depth)
        case ast.BinOp(left=one, op=ast.Add(), right=other):
            yield from _read_by(script, one, depth)
            yield from _read_by(script, other, depth)
        case ast.Name():
            turns = _turns_of(script, value)
            yield from _read_by(script, turns, depth) if turns is not None else _of_name(script, value, depth)


def _turns_of(script: Script, name: ast.Name) -> ast.expr | None:
    """What a loop or comprehension around a name goes over that gives it, alone or as the last of a tuple."""
    below: list[ast.AST] = [name]
    for above in script.above(name):
        loops = getattr(above, "generators", [above] if isinstance(above, ast.For) else [])
        before = loops.index(below[-1]) if below[-1] in loops else len(loops)
        for loop in loops[:before]:
            target = loop.target
            while isinstance(target, ast.Tuple):
                target = target.elts[-1]
            if ast.unparse(target) == name.id and loop.iter not in below:
                return loop.iter  # type: ignore[no-any-return]
        below.append(above)
    return None


def _of_name(script: Script, name: ast.Name, depth: int) -> Iterator[str]:
    """The models whose parameters a name is given, or its list by `append` and `extend`."""
    given = bindings(script.parents, name) if depth else []
    only = given[0] if len(given) == 1 else None
    if isinstance(only, ast.List) and not only.elts:
        for call in ast.walk(scope_of(script.parents, name)):
            if isinstance(call, ast.Call) and name_of(call.func) in (f"{name.id}.append", f"{name.id}.extend"):
                yield from _read_by(script, call.args[0] if call.args else None, depth - 1)
    elif not isinstance(scope_of(script.parents, name), ast.Lambda):
        yield from _read_by(script, only, depth - 1)


def _wrapped(script: Script, call: ast.Call) -> str:
    """The model that a call of FSDP changes for certain."""
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    first = call.args[0] if call.args else words.get("module")
    if not isinstance(first, _Named) or None in words or len(call.args) > _POSITIONAL or words.keys() & set(_KEEPS):
        return ""
    keeps = words.get("use_orig_params")
    if keeps is not None and not (isinstance(keeps, ast.Constant) and keeps.value is False):
        return ""
    return ast.unparse(first) if _FSDP.fullmatch(origin(script.parents, call.func)) else ""


def _wrapped_inside(script: Script, call: ast.Call) -> str:
    """The model that a function of the script is given, and puts into FSDP whatever else it does."""
    functions = [one for one in script.parents if isinstance(one, ast.FunctionDef) and one.name == name_of(call.func)]
    names = [one.arg for one in functions[0].args.args] if len(functions) == 1 and not call.keywords else []
    for statement in functions[0].body if names else ():
        value = statement.value if isinstance(statement, ast.Assign | ast.Expr | ast.Return) else None
        name = _wrapped(script, value) if isinstance(value, ast.Call) and value.func is not call.func else ""
        at = names.index(name) if name in names else len(call.args)
        if at < len(call.args) and isinstance(call.args[at], _Named):
            return ast.unparse(call.args[at])
    return ""


def _is_kept(script: Script, optimizer: ast.Name | ast.Attribute) -> bool:
    """Whether the optimizer stays as it was built, as far as its function shows; an attribute, as far as the script."""
    own = isinstance(optimizer, ast.Name)
    inside = list(ast.walk(scope_of(script.parents, optimizer) if own else script.tree))
    if any(isinstance(node, ast.Attribute) and node.attr in _REPLACED for node in inside):
        return False
    same = ast.unparse(optimizer)
    names = [node for node in inside if isinstance(node, _Named) and ast.unparse(node) == same]
    return sum(isinstance(node.ctx, ast.Store) for node in names) == 1 and len(names) > 1


def _given_anew(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement gives another model."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    method = value.func if isinstance(value, ast.Call) else None
    for node in ast.walk(statement):
        if not isinstance(node, _Named) or not isinstance(node.ctx, ast.Store):
            continue
        itself = isinstance(method, ast.Attribute) and ast.unparse(method.value) == ast.unparse(node)
        if not (itself and isinstance(method, ast.Attribute) and method.attr in _SAME_MODEL):
            yield ast.unparse(node)
