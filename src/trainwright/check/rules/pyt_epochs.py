"""PYT: the order in which epochs see the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.pyt import Script, script_of, span_of

_FRAMEWORKS = re.compile(r"lightning|accelerat|ignite|composer|\.prepare\(|Trainer\(", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_SAMPLER = re.compile(r"Sampler$")
_VALIDATION = re.compile(r"val|test|eval|dev", re.IGNORECASE)


@rule("PYT004", "warning")
def epochs_shuffle_anew(file: File) -> Iterator[Problem]:
    """A DistributedSampler must be given the epoch, or every epoch has the same order.

    A script with a loop over epochs that shuffles with `DistributedSampler` and nowhere calls `set_epoch`. Samplers
    with `shuffle=False` and those for validation are not reported, nor benchmarks and scripts that a framework drives.
    A `DataLoader` that is given a sampler and `shuffle=True` (an error).

    Why: the sampler shuffles with seed + epoch, and the epoch stays 0: in a run of 90 epochs all 90 have one order, and
    each rank sees only its own 1/8 of the data on 8 ranks, the same in every epoch.

    Fix: `sampler.set_epoch(epoch)` at the start of every epoch.

    Source: PyTorch 2.9, torch.utils.data.distributed.DistributedSampler.

    When to ignore: the same order is wanted, to compare runs.
    """
    script = script_of(file)
    if script is not None:
        yield from _shuffled_twice(script)
    if script is None or "set_epoch" in file.text or "bench" in file.path or _FRAMEWORKS.search(file.text):
        return
    loops = [node for node in ast.walk(script.tree) if isinstance(node, ast.For)]
    if not any(_EPOCHS.search(ast.unparse(loop.target)) and _several(loop.iter) for loop in loops):
        return
    for call in script.calls("DistributedSampler"):
        said = {keyword.arg: keyword.value for keyword in call.keywords}
        shuffle = said.get("shuffle")
        if None in said or (shuffle is not None and getattr(shuffle, "value", None) is not True):
            continue
        if len(call.args) < 2 and not _VALIDATION.search(_statement(script.parents, call)):
            yield problem(
                span_of(call.func),
                "no set_epoch: every epoch has the same order, and each rank the same part of the data",
                "call its set_epoch(epoch) at the start of every epoch",
            )
            return


def _shuffled_twice(script: Script) -> Iterator[Problem]:
    """`DataLoader(shuffle=True, sampler=…)`, where the sampler cannot be None."""
    for call in script.calls("DataLoader"):
        said = {keyword.arg: keyword.value for keyword in call.keywords}
        shuffle, sampler = said.get("shuffle"), said.get("sampler")
        if isinstance(shuffle, ast.Constant) and shuffle.value is True and sampler and _is_made(script, sampler):
            yield problem(
                span_of(shuffle),
                "DataLoader raises ValueError: a sampler and shuffle=True exclude each other",
                "remove shuffle=True: DistributedSampler shuffles",
                level="error",
            )


def _is_made(script: Script, sampler: ast.expr) -> bool:
    """Whether an expression is a sampler for certain: a call, or a name that is only ever assigned one."""
    if isinstance(sampler, ast.Call):
        return _SAMPLER.search(ast.unparse(sampler.func)) is not None
    name = ast.unparse(sampler)
    assigned = [n for n in script.parents if isinstance(n, ast.Assign) and name in map(ast.unparse, n.targets)]
    return len(assigned) == 1 and isinstance(assigned[0].value, ast.Call) and _is_made(script, assigned[0].value)


def _several(count: ast.expr) -> bool:
    """Whether a loop has more than one turn, as far as one sees."""
    return not (isinstance(count, ast.Call) and count.args and getattr(count.args[-1], "value", 2) in (0, 1))


def _statement(parents: dict[ast.AST, ast.AST], node: ast.AST) -> str:
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
    return ast.unparse(node)
