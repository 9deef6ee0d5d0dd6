"""A checkpoint of rank 0 that every rank loads onto GPU 0, from which its tensors were saved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.final_paths import names_a_rank
from trainwright.check.programs.first_rank import asks_for_rank
from trainwright.check.programs.python_names import Parents, origin, scope_of
from trainwright.check.programs.training_steps import Mistake
from trainwright.check.programs.wrapped_models import wrapped

_LOCAL = re.compile(r"local_?rank", re.IGNORECASE)
# What puts tensors elsewhere, or gives each process a GPU 0 of its own.
_ELSEWHERE = re.compile(
    r"map_location|CUDA_VISIBLE_DEVICES|set_default_device|serialization|\.cpu\(|to\([\"']cpu|safetensors|gloo|offload"
)
_NO_TENSOR = re.compile(r"epoch|step|iter|best|loss|acc|score|arg|config|seed|version|time", re.IGNORECASE)


def loads_onto_first_gpu(parents: Parents, text: str) -> Iterator[Mistake]:
    """`torch.load(path)` on all ranks, of a file with the states of a model in DistributedDataParallel and of its
    optimizer, both of which load_state_dict copies to where they belong."""
    if "torch.load" not in text or _ELSEWHERE.search(text) or not _LOCAL.search(text) or not wrapped(parents):
        return
    calls = [node for node in parents if isinstance(node, ast.Call)]
    if not any(last(one) == "save" and origin(parents, one.func) == "torch.save" for one in calls):
        return
    for call in calls:
        above = parents[call]
        plain = len(call.args) == 1 and all(word.arg == "weights_only" for word in call.keywords)
        if not plain or origin(parents, call.func) != "torch.load" or _asked(parents, call):
            continue
        if names_a_rank(parents, call.args[0]):
            continue
        name = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
        if isinstance(name, ast.Name) and _is_copied(parents, name):
            what = "every rank loads the checkpoint onto GPU 0, where rank 0 saved it from"
            yield Mistake(call.func, what, 'pass map_location="cpu": load_state_dict copies it', reasons.ALL_ON_GPU_0)


def _asked(parents: Parents, node: ast.AST) -> bool:
    """Whether a condition speaks of ranks, so that not all of them may come here."""
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.If | ast.IfExp) and asks_for_rank(node.test, parents):
            return True
    return False


def _is_copied(parents: Parents, name: ast.Name) -> bool:
    """Whether nothing but load_state_dict reads tensors of what was loaded, among them the optimizer's."""
    scope = scope_of(parents, name)
    uses = [one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name.id]
    keys = [_key(parents, use) for use in uses if use is not name and not _is_another(parents, use, name)]
    return all(keys) and any(re.search("opt", key, re.IGNORECASE) for key in keys)


def _is_another(parents: Parents, use: ast.Name, name: ast.Name) -> bool:
    """Whether a use is of what a later line gives to the name, as where the script saves its next checkpoint."""
    above = parents[use]
    given = use if isinstance(above, ast.Assign) and use in above.targets else _given_last(parents, use)
    return given is not None and given.lineno > name.lineno


def _given_last(parents: Parents, use: ast.Name) -> ast.expr | None:
    """The target of the last plain assignment to a name before its use, in the blocks that hold the use."""
    node: ast.AST = use
    while node in parents:
        above = parents[node]
        for block in (getattr(above, part, None) for part in ("body", "orelse", "finalbody")):
            earlier = block[: block.index(node)] if isinstance(block, list) and node in block else []
            for statement in reversed(earlier):
                targets = statement.targets if isinstance(statement, ast.Assign) else ()
                given = next((one for one in targets if ast.unparse(one) == use.id), None)
                if given is not None:
                    return given
        node = above
    return None


def _key(parents: Parents, use: ast.Name) -> str:
    """The key of a part that load_state_dict is given, or that is no tensor; empty for any other use."""
    part = parents[use]
    key = part.slice if isinstance(part, ast.Subscript) and part.value is use else None
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return ""
    above = parents[part]
    copied = isinstance(above, ast.Call) and last(above) == "load_state_dict"
    return key.value if copied or _NO_TENSOR.search(key.value) else ""
