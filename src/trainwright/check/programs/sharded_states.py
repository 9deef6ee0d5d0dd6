"""States and passes of a model in shards that rank 0 alone asks for: each gathers parameters from all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, last
from trainwright.check.programs.first_rank import leaves_early, of_the_first_rank
from trainwright.check.programs.lonely_passes import lonely_passes
from trainwright.check.programs.python_names import Parents, bindings, origin, scope_of

# Kinds of state that no rank gathers, and wrappers that divide nothing.
_NOT_GATHERED = re.compile(r"LOCAL_STATE_DICT|SHARDED_STATE_DICT|NO_SHARD|summon_full_params")
_FSDP_1 = re.compile(r"torch\.distributed\.fsdp\.(\w+\.)*FullyShardedDataParallel")
_FSDP_2 = re.compile(r"torch\.distributed\.(_composable\.)?fsdp\.(\w+\.)*fully_shard")
_FULL_STATES = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")
_OF_THE_OPTIMIZER = ("optim_state_dict", "full_optim_state_dict")
_OF_ALL_RANKS = re.compile(r"torch\.distributed\.checkpoint\.(save|async_save|load|save_state_dict|load_state_dict)")
_ALONE = ("no_dist", "process_group")


def sharded_models(parents: Parents) -> set[str]:
    """The names that a script gives to models in FullyShardedDataParallel, itself or by a function that returns one."""
    functions = _returning_sharded(parents)
    return {
        ast.unparse(target)
        for node in parents
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if ast.unparse(node.value.func) in functions or _is_sharded(parents, node.value)
    }


def _is_sharded(parents: Parents, value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and bool(_FSDP_1.fullmatch(origin(parents, value.func)))


def _returning_sharded(parents: Parents) -> set[str]:
    """The functions of a script that return nothing but a model in FullyShardedDataParallel."""
    returned: dict[str, list[ast.expr | None]] = {}
    for node in parents:
        function = scope_of(parents, node) if isinstance(node, ast.Return) else None
        if isinstance(node, ast.Return) and isinstance(function, ast.FunctionDef):
            returned.setdefault(function.name, []).append(node.value)
    return {name for name, values in returned.items() if all(_is_sharded(parents, value) for value in values)}


def _asked_for_a_state(calls: list[ast.Call], parents: Parents) -> set[str]:
    """The models that a script gives to `FSDP.state_dict_type`, which takes those in FullyShardedDataParallel."""
    kinds = (one for one in calls if last(one) in ("state_dict_type", "set_state_dict_type") and one.args)
    own = (one for one in kinds if isinstance(one.func, ast.Attribute))
    return {ast.unparse(one.args[0]) for one in own if _FSDP_1.fullmatch(origin(parents, one.func.value))}  # type: ignore[attr-defined]


def lonely_states(parents: Parents) -> Iterator[Lonely]:
    """Calls about a model in shards that only rank 0 makes."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    models = set() if _gathers_nothing(parents) else sharded_models(parents) | _asked_for_a_state(calls, parents)
    divided = {one.args[0].id for one in calls if _shards(one, parents) and isinstance(one.args[0], ast.Name)}
    for call in calls:
        what, fix = _gathered(call, models, models | divided, parents)
        branch = of_the_first_rank(call, parents) if what else None
        if branch is not None and not leaves_early(branch):
            yield Lonely(call, what, fix, reasons.LONELY_STATE)
    yield from lonely_passes(models | divided, _wrapping(parents), parents)


def _wrapping(parents: Parents) -> set[ast.AST]:
    """The functions in which a script itself divides a model."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    return {scope_of(parents, call) for call in calls if _is_sharded(parents, call) or _shards(call, parents)}


def _gathers_nothing(parents: Parents) -> bool:
    names = (node for node in parents if isinstance(node, ast.Attribute | ast.Name | ast.alias))
    return any(_NOT_GATHERED.search(ast.unparse(node).rpartition(".")[2]) for node in names)


def _shards(call: ast.Call, parents: Parents) -> bool:
    return last(call) == "fully_shard" and bool(call.args) and bool(_FSDP_2.fullmatch(origin(parents, call.func)))


def _gathered(call: ast.Call, models: set[str], divided: set[str], parents: Parents) -> tuple[str, str]:
    """What a call gathers from all ranks, and what to do instead; empty where it gathers nothing for certain."""
    name, owner = last(call), ast.unparse(call.func).rpartition(".")[0]
    given = ast.unparse(call.args[0]) if call.args else ""
    if (name == "state_dict" and owner in models) or (name in _OF_THE_OPTIMIZER and given in models):
        what = f"rank 0 alone calls {name} of an FSDP model, which gathers the parameters of all ranks: it waits"
        return what, f"call {name}() on every rank, before the `if`, and torch.save on rank 0"
    if name in _FULL_STATES and divided and _is_full(call, parents):
        what = f"rank 0 alone calls {name}, which gathers the shards of all ranks: it waits"
        return what, f"call {name} on every rank, before the `if`, and torch.save on rank 0"
    if name in ("save", "async_save", "load") and _OF_ALL_RANKS.fullmatch(origin(parents, call.func)):
        alone = any(one.arg in _ALONE or one.arg is None for one in call.keywords)
        what = f"rank 0 alone calls {name} of torch.distributed.checkpoint, which is for all ranks: it waits"
        return ("", "") if alone else (what, "call it on every rank: each writes its own part")
    if ast.unparse(call.func) in divided:
        what = "rank 0 alone runs a model in FSDP: each layer is gathered from all ranks, and it waits"
        return what, "run it on every rank, and print or write the result on rank 0"
    return "", ""


def _is_full(call: ast.Call, parents: Parents) -> bool:
    """Whether the options of a state ask for whole tensors."""
    value = next((one.value for one in call.keywords if one.arg == "options"), None)
    if isinstance(value, ast.Name):
        given = bindings(parents, value)
        value = given[0] if len(given) == 1 else None
    words = value.keywords if isinstance(value, ast.Call) and last(value) == "StateDictOptions" else []
    return any(one.arg == "full_state_dict" and getattr(one.value, "value", None) is True for one in words)
