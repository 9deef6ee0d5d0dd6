"""Schedules of the learning rate whose length is counted in another unit than their steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, bindings
from trainwright.check.programs.training_steps import Mistake, block_of, conditions, is_optimizer, made, unit_of

# The argument with which each schedule is told its length, and its number among the positional ones.
_LENGTHS = {
    "CosineAnnealingLR": ("T_max", 1),
    "OneCycleLR": ("total_steps", 2),
    "LinearLR": ("total_iters", 3),
    "PolynomialLR": ("total_iters", 1),
    "get_linear_schedule_with_warmup": ("num_training_steps", 2),
    "get_cosine_schedule_with_warmup": ("num_training_steps", 2),
}
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_BATCHES = re.compile(r"load|batch|data|step", re.IGNORECASE)
_EVERY_FEW = re.compile(r"%(?!\s*\(?\s*len\()")  # `i % 4 == 0`, not `i % len(loader) == 0`, which is once per epoch
_LOADER = re.compile(r"len\(\s*[\w.]*(load|dl\b)[\w.]*\s*\)", re.IGNORECASE)


def wrong_lengths(parents: Parents) -> Iterator[Mistake]:
    """Schedules that end after as many batches as the run has epochs, or the other way round."""
    for node in list(parents):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
            continue
        length = _length(node.value)
        name = ast.unparse(node.targets[0])
        steps = [one for one in parents if _is_step(one, name)] if length is not None else []
        if length is None or len(steps) != 1 or not _is_counted(steps[0]) or len(made(parents, name)) != 1:
            continue
        epochs = _epochs_around(parents, steps[0])
        if epochs is None:
            continue
        inner = unit_of(parents, steps[0])
        accumulates = _is_with_the_optimizers(parents, steps[0], inner)
        if conditions(parents, steps[0], inner) and not accumulates:
            continue
        what, said = last(node.value), ast.unparse(length)
        each_batch = inner is not epochs and _is_over_batches(inner)
        if each_batch and _count(epochs) in (said, _given(parents, length)):
            often, unit = (
                ("with each step of the optimizer", "optimizer steps") if accumulates else ("for each batch", "batches")
            )
            yield Mistake(
                length, f"{what} ends after {said} steps, a number of epochs, and {name}.step() runs {often}",
                f"multiply it by the {unit} of an epoch, or call {name}.step() once per epoch",
                reasons.EPOCHS_FOR_BATCHES,
            )  # fmt: skip
        elif (
            inner is epochs
            and not accumulates
            and _counts_batches(parents, length, node.value)
            and _has_batches(epochs)
        ):
            yield Mistake(
                length, f"{what} is as long as all batches, and {name}.step() runs once per epoch",
                f"call {name}.step() after each batch", reasons.BATCHES_FOR_EPOCHS,
            )  # fmt: skip


def _is_with_the_optimizers(parents: Parents, step: ast.AST, loop: ast.AST) -> bool:
    """Whether a schedule advances under `if i % n == 0:`, where the step of an optimizer stands beside it."""
    tests = [ast.unparse(branch.test) for branch, held in conditions(parents, step, loop) if _is_if(branch) and held]  # type: ignore[attr-defined]
    if len(tests) != 1 or len(conditions(parents, step, loop)) != 1 or not _EVERY_FEW.search(tests[0]):
        return False
    statements, _ = block_of(parents, step)
    calls = [one.value for one in statements if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    others = [call for call in calls if last(call) == "step" and call is not step]
    owners = [call.func.value for call in others if isinstance(call.func, ast.Attribute)]
    scaled = [call.args[0] for call in others if len(call.args) == 1]
    return any(is_optimizer(parents, ast.unparse(one)) for one in (*owners, *scaled))


def _is_if(node: ast.AST) -> bool:
    return isinstance(node, ast.If)


def _given(parents: Parents, length: ast.expr) -> str:
    """What the name of a length was given, where that is one value."""
    given = bindings(parents, length) if isinstance(length, ast.Name) else []
    return ast.unparse(given[0]) if len(given) == 1 and given[0] is not None else ""


def _length(call: ast.Call) -> ast.expr | None:
    name, place = _LENGTHS.get(last(call), ("", 0))
    words = {word.arg: word.value for word in call.keywords}
    if last(call) == "OneCycleLR" and "steps_per_epoch" in words and "epochs" in words:
        return words["steps_per_epoch"]
    return words.get(name) or (call.args[place] if name and len(call.args) > place else None)


def _is_step(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.step"


def _is_counted(step: ast.AST) -> bool:
    """`step()`: with an argument, such as `epoch + i / len(loader)`, the call says where the schedule is."""
    return isinstance(step, ast.Call) and not step.args and not step.keywords


def _epochs_around(parents: Parents, step: ast.AST) -> ast.For | None:
    """The loop over epochs around a step, in the same function."""
    node = step
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.For) and _EPOCHS.search(ast.unparse(node.target)):
            return node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
    return None


def _count(loop: ast.For) -> str:
    """How often a loop runs: the end of its range."""
    call = loop.iter if isinstance(loop.iter, ast.Call) and last(loop.iter) in ("range", "trange") else None
    return ast.unparse(call.args[:2][-1]) if call is not None and call.args else ""


def _is_over_batches(loop: ast.AST) -> bool:
    return isinstance(loop, ast.For) and _BATCHES.search(ast.unparse(loop.iter)) is not None


def _has_batches(epochs: ast.For) -> bool:
    """Whether the batches of an epoch are in the loop itself."""
    inner = (node for one in epochs.body for node in ast.walk(one) if _is_over_batches(node))
    return any(isinstance(node, ast.Call) and last(node) == "backward" for loop in inner for node in ast.walk(loop))


def _counts_batches(parents: Parents, length: ast.expr, call: ast.Call) -> bool:
    """Whether a length is a product with the batches of an epoch."""
    if isinstance(length, ast.Name):
        given = bindings(parents, length)
        length = given[0] if len(given) == 1 and given[0] is not None else length
    per_epoch = last(call) == "OneCycleLR" and any(word.arg == "steps_per_epoch" for word in call.keywords)
    product = isinstance(length, ast.BinOp) and isinstance(length.op, ast.Mult)
    return (per_epoch or product) and _LOADER.search(ast.unparse(length)) is not None
