"""Barriers and collectives of a training script that one rank alone reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.programs.first_rank import asks_first, asks_for_rank, leaves_early, of_the_first_rank
from trainwright.check.programs.python_names import Parents, origin

_MEETS = re.compile(r"(^|\.)(synchronize|sync\w*|wait_for\w*|\w*barrier|rendezvous|zero_first\w*)$")
# Collectives, and how many arguments come before the group, which may be of fewer ranks.
_COLLECTIVES = {
    "all_reduce": 2, "broadcast": 2, "all_gather": 2, "all_gather_into_tensor": 2, "all_gather_object": 2,
    "reduce_scatter": 3, "reduce_scatter_tensor": 3, "broadcast_object_list": 2, "reduce": 3, "gather": 3,
    "gather_object": 3, "scatter": 3, "scatter_object_list": 3, "all_to_all": 2, "all_to_all_single": 4,
}  # fmt: skip
_STEMS = re.compile(
    r"broadcast|bcast|reduce|gather|scatter|sync|all_to_all|barrier|(^|_)(i?send|i?recv)", re.IGNORECASE
)
_RANK = re.compile(r"rank|main_process|is_main|master|primary|chief", re.IGNORECASE)
# Calls with which a branch for other ranks meets nobody.
_HARMLESS = re.compile(
    r"^(print|info|debug|warning|error|log\w*|set\w*|disable\w*|enable\w*|getLogger|format|join|append|add|update|close"
    r"|makedirs|mkdir|exists|isfile|int|str|float|len|range|open|write|flush|tqdm|nullcontext|item|time|get_rank|get"
    r"|save|state_dict|get_last_lr|get_world_size|is_initialized|remove|replace|rename|init|finish|SummaryWriter|unlink"
    r"|basicConfig|StreamHandler|NullHandler|addHandler|setLevel|simplefilter|filterwarnings|device|Path|dump|round)$"
)


@dataclass(frozen=True, slots=True)
class Lonely:
    """A call that waits for ranks which do not make it."""

    call: ast.Call
    what: str
    fix: str
    why: str
    level: Level = "warning"


def lonely_calls(parents: Parents) -> Iterator[Lonely]:
    """What rank 0 alone calls and all ranks must."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    for call in _lonely(calls, parents, "barrier"):
        what = "rank 0 alone reaches this barrier: it waits for the other ranks until the timeout"
        yield Lonely(call, what, "move it out of the `if`", reasons.LONELY_BARRIER)
    for call in _lonely(calls, parents, *_COLLECTIVES):
        what = f"rank 0 alone calls {last(call)}: it waits for the other ranks until the timeout"
        yield Lonely(call, what, "move it out of the `if`, so that every rank calls it", reasons.LONELY_COLLECTIVE)
    yield from _inside_functions(calls, parents)


def last(call: ast.Call) -> str:
    """The name of what is called, without what stands before the dot."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _lonely(calls: list[ast.Call], parents: Parents, *names: str) -> Iterator[ast.Call]:
    """Calls that the other ranks certainly do not meet: no other branch by rank holds one."""
    for call in calls:
        if last(call) not in names or not is_of_all_ranks(call, parents):
            continue
        above = of_the_first_rank(call, parents)
        if above is not None and not leaves_early(above) and not _met_elsewhere(calls, call, above, parents):
            yield call


def is_of_all_ranks(call: ast.Call, parents: Parents) -> bool:
    """Whether a collective of torch is one of the group of all ranks."""
    name = last(call)
    grouped = len(call.args) > _COLLECTIVES.get(name, 0) or any(one.arg in (None, "group") for one in call.keywords)
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    return not grouped and not starred and origin(parents, call.func) == f"torch.distributed.{name}"


def _met_elsewhere(calls: list[ast.Call], call: ast.Call, above: ast.If, parents: Parents) -> bool:
    like = [one for one in calls if one is not call and _is_like(one, call)]
    below = (one for one in like if of_the_first_rank(one, parents) is not above)
    if any(_under_a_rank(one, parents) for one in below) or any(_hides(one, calls, parents) for one in like):
        return True
    return any(branches_by_rank(node, above, parents) for node in parents)


def _is_like(one: ast.Call, call: ast.Call) -> bool:
    name = ast.unparse(one.func)
    if ".cuda." in name or name.endswith("SyncBatchNorm.convert_sync_batchnorm") or last(one) == "no_sync":
        return False
    return _STEMS.search(last(one)) is not None or (last(call) == "barrier" and _MEETS.search(name) is not None)


def _hides(one: ast.Call, calls: list[ast.Call], parents: Parents) -> bool:
    """Whether a call may meet others in another file: no function of torch, nor of this file."""
    name = last(one)
    if origin(parents, one.func).startswith("torch."):
        return False
    return not any(isinstance(node, ast.FunctionDef) and node.name == name for node in parents)


def _under_a_rank(call: ast.Call, parents: Parents) -> bool:
    """Whether a condition that speaks of ranks decides who makes a call."""
    node: ast.AST = call
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.If | ast.IfExp | ast.While) and asks_for_rank(node.test, parents, _RANK):
            return True
    return False


def branches_by_rank(node: ast.AST, above: ast.If, parents: Parents) -> bool:
    """Whether another statement sends the other ranks elsewhere, to calls that may wait for rank 0."""
    if not isinstance(node, ast.If | ast.IfExp | ast.While) or node is above:
        return False
    if not asks_for_rank(node.test, parents, _RANK):
        return False
    first = asks_first(node.test, parents)
    branches = [node.orelse] if first else [node.body, node.orelse]
    parts = [part for branch in branches for part in (branch if isinstance(branch, list) else [branch])]
    inside = (one for part in parts for one in ast.walk(part) if isinstance(one, ast.Call))
    return any(not _HARMLESS.match(last(one)) for one in inside)


def _inside_functions(calls: list[ast.Call], parents: Parents) -> Iterator[Lonely]:
    """Functions of the script that call a collective, and that rank 0 alone calls."""
    for inner in calls:
        if last(inner) not in _COLLECTIVES and last(inner) != "barrier":
            continue
        function = parents.get(inner)
        while function is not None and not isinstance(function, ast.FunctionDef):
            function = parents.get(function)
        if function is None or _under_a_rank(inner, parents) or not is_of_all_ranks(inner, parents):
            continue
        outer = [call for call in calls if last(call) == function.name]
        above = [of_the_first_rank(call, parents) for call in outer]
        named = [node for node in parents if isinstance(node, ast.Name | ast.Attribute) and _names(node, function)]
        if not outer or len(named) != len(outer) or of_the_first_rank(inner, parents) is not None:
            continue
        branch = above[0]
        if branch is None or None in above or leaves_early(branch) or _met_elsewhere(calls, inner, branch, parents):
            continue
        what = f"rank 0 alone calls {function.name}, which calls {last(inner)} in line {inner.lineno}: it waits"
        fix = f"call {function.name} on every rank, and use its result on rank 0"
        yield Lonely(outer[0], what, fix, reasons.LONELY_COLLECTIVE)
        return


def _names(node: ast.Name | ast.Attribute, function: ast.FunctionDef) -> bool:
    return (node.id if isinstance(node, ast.Name) else node.attr) == function.name
