"""Models that stay in eval mode while they are trained on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, scope_of
from trainwright.check.programs.training_steps import Mistake

_LOOPS = (ast.For, ast.While)


def left_in_eval(parents: Parents) -> Iterator[Mistake]:
    """`model.eval()` in a training loop, itself or in a function that it calls, where `model.train()` is called only
    before the loop, or never."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    if not any(last(one) == "eval" for one in calls):
        return
    trains = [one for one in calls if last(one) == "train" and len(one.args) < 2]
    functions = {node.name: node for node in parents if isinstance(node, ast.FunctionDef)}
    for loop in (node for node in parents if isinstance(node, _LOOPS)):
        inside = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
        if any(scope_of(parents, one) is not scope_of(parents, loop) or one in inside for one in trains):
            continue
        mistake = _mode(loop, inside, functions)
        if mistake is not None:
            yield mistake
            return


def _mode(loop: ast.AST, inside: list[ast.Call], functions: dict[str, ast.FunctionDef]) -> Mistake | None:
    """The model that a loop trains and, further down, puts into eval mode."""
    stored = {ast.unparse(node) for node in ast.walk(loop) if isinstance(getattr(node, "ctx", None), ast.Store)}
    trained: dict[str, int] = {}
    for call in sorted(inside, key=lambda one: one.lineno):
        for model in _trained_by(call, inside, functions):
            trained.setdefault(model, call.lineno)
        model = _evaluated_by(call, functions)
        if model in trained and trained[model] < call.lineno and model not in stored:
            what = f"{model} stays in eval mode after this: no train() follows in the loop"
            once = _is_once_an_epoch(loop, trained[model], call.lineno)
            fix = f"call {model}.train() " + ("at the start of every epoch" if once else "where the validation ends")
            return Mistake(call.func, what, fix, reasons.LEFT_IN_EVAL)
    return None


def _is_once_an_epoch(loop: ast.AST, trained: int, evaluated: int) -> bool:
    """Whether a loop over epochs trains before the validation only; an inner loop with both trains on after it."""
    inner = [one for one in ast.walk(loop) if isinstance(one, _LOOPS) and one is not loop]
    both = any(one.lineno <= trained and evaluated <= (one.end_lineno or 0) for one in inner)
    return isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target).lower() and not both


def _trained_by(call: ast.Call, inside: list[ast.Call], functions: dict[str, ast.FunctionDef]) -> list[str]:
    """The models that a call trains: those called in a loop with backward and step, those given to a function."""
    function = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is not None:
        return (
            [ast.unparse(one) for one in call.args if isinstance(one, ast.Name)] if _trains(ast.walk(function)) else []
        )
    later = [one for one in inside if one.lineno >= call.lineno]
    return [ast.unparse(call.func).removesuffix(".module")] if _trains(later) else []


def _trains(nodes: Iterator[ast.AST] | list[ast.Call]) -> bool:
    names = {last(node) for node in nodes if isinstance(node, ast.Call)}
    return {"backward", "step"} <= names


def _evaluated_by(call: ast.Call, functions: dict[str, ast.FunctionDef]) -> str:
    """The model that a call puts into eval mode, itself or as a function of the script that is given it."""
    if last(call) == "eval" and isinstance(call.func, ast.Attribute) and not call.args:
        return ast.unparse(call.func.value).removesuffix(".module")
    function = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None or _trains(ast.walk(function)):
        return ""
    for parameter, given in zip(function.args.args, call.args, strict=False):
        if any(_puts_into_eval(node, parameter.arg) for node in ast.walk(function)):
            return ast.unparse(given).removesuffix(".module")
    return ""


def _puts_into_eval(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{name}.eval", f"{name}.module.eval")
