"""Tensors in the memory of the host that a script gives to a collective of NCCL, which has none for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, is_of_all_ranks, last
from trainwright.check.programs.python_names import Parents, bindings, origin, scope_of

_MAKERS = re.compile(r"torch\.(tensor|zeros|ones|empty|full|arange|rand|randn|randint|Tensor|FloatTensor|LongTensor)")
# Collective -> the argument that must be on the GPU.
_GIVEN = {"all_reduce": 0, "broadcast": 0, "reduce": 0, "all_gather": 1}
# What gives tensors another device, or the group another backend, than the lines themselves show.
_ELSEWHERE = re.compile(
    r"set_default_(device|tensor_type)|gloo|\bmpi\b|\bccl\b|hccl|xla|cpu:|with torch\.device|DeviceContext|monkey"
)


def host_tensors(parents: Parents, text: str) -> Iterator[Lonely]:
    """`dist.all_reduce(torch.tensor(x))` where each group of the script is one of nccl."""
    if _ELSEWHERE.search(text) or not _only_nccl(parents):
        return
    for call in (node for node in parents if isinstance(node, ast.Call) and last(node) in _GIVEN):
        place = _GIVEN[last(call)]
        given = call.args[place] if len(call.args) > place else None
        if isinstance(given, ast.Name) and is_of_all_ranks(call, parents) and _is_on_the_host(given, parents):
            what = f"{last(call)} of {given.id}, a tensor in the host's memory: nccl has no collective for it"
            fix = f"write {given.id} = {given.id}.cuda() before it"
            if "set_device(" not in text:  # GPU 0 is then the device of every rank
                fix = f"move {given.id} to the GPU of its rank before it"
            yield Lonely(call, what, fix, reasons.HOST_TENSOR)


def _only_nccl(parents: Parents) -> bool:
    """Whether the script names nccl, and nothing else, for each of its process groups."""
    calls = [node for node in parents if isinstance(node, ast.Call) and last(node) == "init_process_group"]
    return bool(calls) and all(_backend(call) == "nccl" for call in calls)


def _backend(call: ast.Call) -> str:
    stated = [call.args[0]] if call.args else [one.value for one in call.keywords if one.arg == "backend"]
    return str(stated[0].value) if stated and isinstance(stated[0], ast.Constant) else ""


def _is_on_the_host(name: ast.Name, parents: Parents) -> bool:
    """Whether a name is given one tensor, made without a device; `total += x` leaves it where it is."""
    values = bindings(parents, name)
    shown = [value for value in values if value is not None]
    made = shown[0] if len(shown) == 1 and len(values) == 1 + _changes_in_place(name, parents) else None
    if not isinstance(made, ast.Call) or any(one.arg in ("device", "out", None) for one in made.keywords):
        return False
    return _MAKERS.fullmatch(origin(parents, made.func)) is not None and not _is_changed(name, parents)


def _changes_in_place(name: ast.Name, parents: Parents) -> int:
    """How often `+=` and the like change the tensor of a name; `@=` gives the name another one."""
    scope = scope_of(parents, name)
    changes = (node for node in parents if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.MatMult))
    targets = (change.target for change in changes if scope_of(parents, change) is scope)
    return sum(isinstance(target, ast.Name) and target.id == name.id for target in targets)


def _is_changed(name: ast.Name, parents: Parents) -> bool:
    """Whether the tensor itself may be moved: `t.data = t.data.cuda()`."""
    stores = (node for node in parents if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return any(ast.unparse(node.value) == name.id for node in stores)
