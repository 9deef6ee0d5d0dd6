"""Steps that a rank skips by itself, while the others wait in their backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, last
from trainwright.check.programs.python_names import Parents
from trainwright.check.programs.sharded_states import sharded_models
from trainwright.check.programs.wrapped_models import wrapped

_NOT_FINITE = re.compile(r"\b(isfinite|isnan|isinf)\b")
_AGREED = re.compile(r"reduce|gather|broadcast|sync|agree|any_rank|join", re.IGNORECASE)


def lonely_skips(parents: Parents) -> Iterator[Lonely]:
    """`if not torch.isfinite(loss): continue` before backward, of a model whose gradients are averaged."""
    models = set(wrapped(parents)) | sharded_models(parents)
    for node in parents if models else ():
        if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Continue) or node.orelse:
            continue
        asked = _asked(node.test)
        loop = _loop_of(parents, node)
        if asked is None or loop is None or not _is_before_backward(loop, node, models):
            continue
        words = [one for one in ast.walk(loop) if isinstance(one, ast.Name | ast.Attribute)]
        if any(_AGREED.search(one.attr if isinstance(one, ast.Attribute) else one.id) for one in words):
            continue
        what = "a rank whose loss is not finite skips backward alone, and the others wait in theirs"
        fix = "let all ranks decide together: all_reduce a flag with ReduceOp.MAX, and skip on every rank"
        yield Lonely(asked, what, fix, reasons.SKIPPED_ALONE)


def _asked(test: ast.expr) -> ast.Call | None:
    """The question whether a loss is a number, in a condition."""
    calls = (one for one in ast.walk(test) if isinstance(one, ast.Call))
    return next((one for one in calls if _NOT_FINITE.search(last(one)) and "loss" in ast.unparse(one).lower()), None)


def _loop_of(parents: Parents, node: ast.AST) -> ast.For | None:
    """The loop whose turn is skipped, where the condition is one of its own statements."""
    above = parents[node]
    return above if isinstance(above, ast.For) and node in above.body else None


def _is_before_backward(loop: ast.For, skip: ast.If, models: set[str]) -> bool:
    """Whether the model runs above the condition and backward follows it, in the same turn."""
    number = loop.body.index(skip)
    above, below = (
        [node for one in part for node in ast.walk(one) if isinstance(node, ast.Call)]
        for part in (loop.body[:number], loop.body[number + 1 :])
    )
    runs = any(ast.unparse(one.func) in models for one in above)
    return runs and any(last(one) == "backward" for one in below) and not any(last(one) == "backward" for one in above)
