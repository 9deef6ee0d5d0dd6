"""Ranks that end a training early by themselves, while the others go on and wait for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, last
from trainwright.check.programs.python_names import Parents, bindings
from trainwright.check.programs.wrapped_models import wrapped

_AGREED = re.compile(r"reduce|gather|broadcast|sync|metrics|agree|\bJoin\b|all_to_all|object_list", re.IGNORECASE)
_COUNTS = re.compile(r"step|iter|epoch|count|num|seen|time|total", re.IGNORECASE)
_FLOWS = 3  # from a result to a count of epochs, to a flag


def lonely_stops(parents: Parents, text: str) -> Iterator[Lonely]:
    """`break` out of the epochs by a loss of this rank's own part of the data, with no collective in the script."""
    if "DistributedSampler" not in text or _AGREED.search(text) or not wrapped(parents) or not _all_divided(parents):
        return
    functions = {one.name for one in parents if isinstance(one, ast.FunctionDef) and _computes(one)}
    for stop in (node for node in parents if isinstance(node, ast.Break)):
        loop, tests = _loop_and_tests(parents, stop)
        if loop is None or not any(isinstance(one, ast.Call) and last(one) == "backward" for one in _inside(loop)):
            continue
        results = {name: call for name, call in _results(loop) if last(call) in functions}
        decided = _dependent(loop, set(results))
        if any(_names(test) & decided for test in tests):
            call = next(iter(results.values()))
            what = (
                f"each rank leaves the loop (line {stop.lineno}) by what {last(call)} finds in its own part of the data"
            )
            fix = (
                f"put what {last(call)} returns into a tensor on each rank's device, and dist.all_reduce this on every "
            )
            fix += "rank before it is compared"
            yield Lonely(call, what, fix, reasons.STOPS_ALONE)
            return


def _computes(function: ast.FunctionDef) -> bool:
    """Whether a function reads numbers of tensors in a loop."""
    loops = any(isinstance(one, ast.For | ast.comprehension) for one in ast.walk(function))
    return loops and ".item()" in ast.unparse(function)


def _all_divided(parents: Parents) -> bool:
    """Whether each loader has a sampler that divides the data among the ranks."""
    loaders = [node for node in parents if isinstance(node, ast.Call) and last(node) == "DataLoader"]
    samplers = [word.value for one in loaders for word in one.keywords if word.arg == "sampler"]
    return 0 < len(loaders) == len(samplers) and all(_divides(parents, one) for one in samplers)


def _divides(parents: Parents, sampler: ast.expr) -> bool:
    given = bindings(parents, sampler) if isinstance(sampler, ast.Name | ast.Attribute) else [sampler]
    return bool(given) and all(isinstance(one, ast.Call) and last(one) == "DistributedSampler" for one in given)


def _loop_and_tests(parents: Parents, stop: ast.AST) -> tuple[ast.For | None, list[ast.expr]]:
    """The loop that a `break` ends, where it is one of `for`, and the conditions on its way."""
    tests, node = [], parents[stop]
    while isinstance(node, ast.If):
        tests.append(node.test)
        node = parents[node]
    return (node, tests) if isinstance(node, ast.For) else (None, [])


def _inside(loop: ast.For) -> Iterator[ast.AST]:
    """The nodes of the loops within a loop."""
    inner = (one for one in ast.walk(loop) if isinstance(one, ast.For) and one is not loop)
    return (node for one in inner for node in ast.walk(one))


def _results(loop: ast.For) -> Iterator[tuple[str, ast.Call]]:
    """What the turns of a loop assign from calls, each with its call; a number of steps is the same on all ranks."""
    for node in loop.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
            if name and not _COUNTS.search(name):
                yield name, node.value


def _dependent(loop: ast.For, names: set[str]) -> set[str]:
    """The names that hold, or are set where a condition over them holds, what a rank has computed alone."""
    names = set(names)
    for _ in range(_FLOWS):
        for branch in (one for one in ast.walk(loop) if isinstance(one, ast.If) and _names(one.test) & names):
            for node in ast.walk(branch):
                if isinstance(node, ast.Assign | ast.AugAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names |= set().union(*map(_names, targets))
    return names


def _names(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
