"""Passes of a training that go around the wrapper which averages gradients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, origin, scope_of
from trainwright.check.programs.training_steps import Mistake, unit_of

_DDP = re.compile(r"torch\.nn\.parallel\.(\w+\.)*DistributedDataParallel")
_AVERAGED = re.compile(r"\.grad\b|_hook\(|all_reduce_grad|average_grad|sync_grad|reduce_grad", re.IGNORECASE)
_NO_TRAINING = re.compile(r"no_grad|inference_mode|no_sync|\beval|val|test|sample|generate|infer|ema", re.IGNORECASE)
_NO_GRADIENTS = re.compile(r"\b(no_grad|inference_mode)\b")
_NOT_A_PASS = ("state_dict", "load_state_dict", "parameters", "named_parameters", "train", "eval", "buffers", "modules")


def wrapped(parents: Parents) -> dict[str, tuple[str, ast.Call]]:
    """The names that a script gives to models in DistributedDataParallel, with what they hold."""
    models: dict[str, tuple[str, ast.Call]] = {}
    for node in parents:
        call = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(call, ast.Call) and _DDP.fullmatch(origin(parents, call.func)):
            inner = call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "module"), None)
            models[ast.unparse(node.targets[0])] = ast.unparse(inner) if inner is not None else "", call  # type: ignore[attr-defined]
    return models


def bypassed(parents: Parents, text: str) -> Iterator[Mistake]:
    """Training passes through the model inside DistributedDataParallel, where none goes through the wrapper."""
    models = wrapped(parents) if "DistributedDataParallel" in text and not _AVERAGED.search(text) else {}
    for name, (inner, wrap) in models.items():
        if _is_run(parents, name):
            continue
        around = [
            node for node in parents if isinstance(node, ast.Call) and _is_around(parents, node, name, inner, wrap)
        ]
        trained = [node for node in around if _is_trained(parents, node)]
        if trained:
            first = min(trained, key=lambda node: node.lineno)
            what = f"{ast.unparse(first.func)}(…) goes around DistributedDataParallel: gradients are not averaged"
            yield Mistake(first.func, what, _through(first, name), reasons.NOT_AVERAGED)


def _through(call: ast.Call, name: str) -> str:
    """The fix: the wrapper runs `forward` and no other method."""
    method = last(call) if ast.unparse(call.func).startswith(f"{name}.module.") else "forward"
    own = "" if method == "forward" else f", and let forward of its class do what {method} does"
    return f"call {name}(…) instead{own}"


def _is_run(parents: Parents, name: str, function: ast.AST | None = None, depth: int = 3) -> bool:
    """Whether a model is called for its gradients, or handed to something that may call it so; `function`: in which
    the name stands for the model."""
    for node in parents if function is None else ast.walk(function):
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        if ast.unparse(node) != name:
            continue
        above = parents[node]
        if isinstance(above, ast.Attribute) and above.attr != "forward":
            continue
        if not _is_without_gradients(parents, node) and not _only_looks_at(parents, node, depth):
            return True
    return False


def _is_without_gradients(parents: Parents, node: ast.AST) -> bool:
    """Whether a node stands in a block or function that computes no gradients."""
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.With) and any(_NO_GRADIENTS.search(ast.unparse(one)) for one in node.items):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return any(_NO_GRADIENTS.search(ast.unparse(one)) for one in node.decorator_list)
    return False


def _only_looks_at(parents: Parents, node: ast.expr, depth: int) -> bool:
    """Whether a model is handed to a function of the script that saves it, or calls it without gradients only."""
    word = parents[node]
    call = parents[word] if isinstance(word, ast.keyword) else word
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func is node or not depth:
        return False
    named = [one for one in parents if isinstance(one, ast.FunctionDef) and one.name == call.func.id]
    if len(named) != 1 or not isinstance(parents[named[0]], ast.Module) or named[0].args.vararg or named[0].args.kwarg:
        return False
    listed = [one.arg for one in named[0].args.args]
    place = call.args.index(node) if node in call.args else len(listed)
    parameter = word.arg if isinstance(word, ast.keyword) else listed[place] if place < len(listed) else None
    return parameter is not None and not _is_run(parents, parameter, named[0], depth - 1)


def _is_around(parents: Parents, call: ast.Call, name: str, inner: str, wrap: ast.Call) -> bool:
    """`model.module(x)`, a method of it, or the model that was wrapped under its other name."""
    called = ast.unparse(call.func)
    if called in (f"{name}.module", f"{name}.module.forward"):
        return True
    if called.startswith(f"{name}.module."):
        return (
            called.count(".") == name.count(".") + 2 and last(call) not in _NOT_A_PASS and _is_the_loss(parents, call)
        )
    same = scope_of(parents, call) is scope_of(parents, wrap)
    return inner != name and called == inner and same and call.lineno > wrap.lineno


def _is_the_loss(parents: Parents, call: ast.Call) -> bool:
    """Whether what a call returns is what `backward` is called of."""
    above = parents[call]
    names = {ast.unparse(one) for one in above.targets} if isinstance(above, ast.Assign) else set()
    unit = unit_of(parents, call)
    passes = (one for one in ast.walk(unit) if isinstance(one, ast.Call) and last(one) == "backward")
    return any(ast.unparse(one.func).removesuffix(".backward") in names for one in passes)


def _is_trained(parents: Parents, call: ast.Call) -> bool:
    """Whether a backward pass follows a call in the same loop, and nothing says that it is no training."""
    unit = unit_of(parents, call)
    if not isinstance(unit, ast.For | ast.While | ast.FunctionDef):
        return False
    node: ast.AST = call
    while node in parents and node is not unit:
        node = parents[node]
        if isinstance(node, ast.With) and any(_NO_TRAINING.search(ast.unparse(one)) for one in node.items):
            return False
    loop = unit.iter if isinstance(unit, ast.For) else None
    named = unit.name if isinstance(unit, ast.FunctionDef) else ast.unparse(loop) if loop is not None else ""
    passes = (one for one in ast.walk(unit) if isinstance(one, ast.Call) and last(one) == "backward")
    return not _NO_TRAINING.search(named) and any((one.end_lineno or 0) >= call.lineno for one in passes)
