"""Barriers and collectives of a training script that one rank alone reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check import reasons
from trainwright.check.python_names import Parents, origin

_FIRST_RANK = re.compile(r"(?:\w+\.)*(?:(?:global_)?rank|get_rank\(\)) == 0")
_OPTION = re.compile(r"\w*(args|opt|cfg|config)\w*\.rank ")  # which may count nodes
_NODES = re.compile(r"rank of (the |this )?node|node.?rank", re.IGNORECASE)
_MEETS = re.compile(r"(^|\.)(synchronize|sync\w*|wait_for\w*|\w*barrier|rendezvous|zero_first\w*)$")
# Collectives, and how many arguments come before the group, which may be of fewer ranks.
_COLLECTIVES = {
    "all_reduce": 2, "broadcast": 2, "all_gather": 2, "all_gather_into_tensor": 2, "all_gather_object": 2,
    "reduce_scatter": 3, "reduce_scatter_tensor": 3, "broadcast_object_list": 2,
}  # fmt: skip
_STEMS = re.compile(r"broadcast|bcast|reduce|gather|scatter|sync|all_to_all", re.IGNORECASE)
_RANK = re.compile(r"rank|main_process|is_main|master|primary|chief", re.IGNORECASE)
# Kinds of state that no rank gathers, and wrappers that divide nothing.
_NOT_GATHERED = re.compile(r"LOCAL_STATE_DICT|SHARDED_STATE_DICT|NO_SHARD|summon_full_params")


@dataclass(frozen=True, slots=True)
class Lonely:
    """A call that waits for ranks which do not make it."""

    call: ast.Call
    what: str
    fix: str
    why: str


def lonely_calls(parents: Parents) -> Iterator[Lonely]:
    """What rank 0 alone calls and all ranks must."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    for call in lonely_barriers([one for one in calls if _last(one) == "barrier"], parents):
        what = "rank 0 alone reaches this barrier: it waits for the other ranks until the timeout"
        yield Lonely(call, what, "move it out of the `if`", reasons.LONELY_BARRIER)
    for call in _lonely_collectives(calls, parents):
        what = f"rank 0 alone calls {_last(call)}: it waits for the other ranks until the timeout"
        yield Lonely(call, what, "move it out of the `if`, so that every rank calls it", reasons.LONELY_COLLECTIVE)
    for call in _lonely_states(calls, parents):
        what = "rank 0 alone calls state_dict of an FSDP model, which gathers the parameters of all ranks: it waits"
        fix = "call state_dict() on every rank, before the `if`, and torch.save on rank 0"
        yield Lonely(call, what, fix, reasons.LONELY_STATE)


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2] if isinstance(call.func, ast.Attribute | ast.Name) else ""


def lonely_barriers(barriers: list[ast.Call], parents: Parents) -> Iterator[ast.Call]:
    """The script's only barrier, if it stands in the body of `if rank == 0`. Of two, the other ranks may meet it in
    the second; so they may where a function of another file waits."""
    if len(barriers) != 1 or barriers[0].args or barriers[0].keywords:  # a group may be of fewer ranks
        return
    if origin(parents, barriers[0].func) != "torch.distributed.barrier" or _meets_elsewhere(barriers[0], parents):
        return
    if _of_the_first_rank(barriers[0], parents) is not None:
        yield barriers[0]


def _lonely_collectives(calls: list[ast.Call], parents: Parents) -> Iterator[ast.Call]:
    """The only call of its kind: another one, or another branch by rank, may be where the other ranks meet it."""
    like = [call for call in calls if _STEMS.search(_last(call)) and ".cuda." not in ast.unparse(call.func)]
    if len(like) != 1 or _last(like[0]) not in _COLLECTIVES:
        return
    call, name = like[0], _last(like[0])
    grouped = len(call.args) > _COLLECTIVES[name] or any(one.arg in (None, "group") for one in call.keywords)
    if grouped or any(isinstance(one, ast.Starred) for one in call.args):
        return
    above = _of_the_first_rank(call, parents)
    if above is None or origin(parents, call.func) != f"torch.distributed.{name}":
        return
    if not any(_branches_by_rank(node, above) for node in parents):
        yield call


def _branches_by_rank(node: ast.AST, above: ast.If) -> bool:
    """Whether another statement sends the other ranks elsewhere."""
    if not isinstance(node, ast.If | ast.IfExp | ast.While) or node is above:
        return False
    test = ast.unparse(node.test)
    return _RANK.search(test) is not None and (bool(node.orelse) or _FIRST_RANK.fullmatch(test) is None)


def _lonely_states(calls: list[ast.Call], parents: Parents) -> Iterator[ast.Call]:
    """The only call of state_dict of a model that is wrapped in FSDP. That of FSDP 2 gathers nothing."""
    models = {
        ast.unparse(target)
        for node in parents
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if _is_fsdp(origin(parents, node.value.func))
    }
    names = (node for node in parents if isinstance(node, ast.Attribute | ast.Name | ast.alias))
    if not models or any(_NOT_GATHERED.search(ast.unparse(node).rpartition(".")[2]) for node in names):
        return
    states = [one for one in calls if _last(one) == "state_dict" and _owner(one) in models]
    if len(states) == 1 and _of_the_first_rank(states[0], parents) is not None:
        yield states[0]


def _is_fsdp(name: str) -> bool:
    return name.startswith("torch.distributed.fsdp.") and name.endswith(".FullyShardedDataParallel")


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[0]


def _of_the_first_rank(call: ast.Call, parents: Parents) -> ast.If | None:
    """The `if rank == 0` without an else whose body holds the call, in the same function."""
    node: ast.AST = call
    while node in parents:
        above = parents[node]
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return None
        if isinstance(above, ast.If) and node in above.body and _FIRST_RANK.fullmatch(ast.unparse(above.test)):
            return above if not above.orelse and not _counts_nodes(above.test, parents) else None
        node = above
    return None


def _meets_elsewhere(barrier: ast.Call, parents: Parents) -> bool:
    calls = (node for node in parents if isinstance(node, ast.Call) and node is not barrier)
    names = (ast.unparse(call.func) for call in calls)
    return any(_MEETS.search(name) and ".cuda." not in name for name in names)


def _counts_nodes(test: ast.expr, parents: Parents) -> bool:
    """Whether the rank is an option that the script's help calls the node's."""
    texts = (node.value for node in parents if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return _OPTION.match(ast.unparse(test)) is not None and any(_NODES.search(text) for text in texts)
