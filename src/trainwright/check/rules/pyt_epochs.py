"""PYT: the order in which epochs see the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.pyt import script_of, span_of

_FRAMEWORKS = re.compile(r"lightning|accelerat|ignite|composer|\.prepare\(|Trainer\(", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_VALIDATION = re.compile(r"val|test|eval|dev", re.IGNORECASE)


@rule("PYT004", "warning")
def epochs_shuffle_anew(file: File) -> Iterator[Problem]:
    """A DistributedSampler must be given the epoch, or every epoch has the same order.

    A script with a loop over epochs that shuffles with `DistributedSampler` and nowhere calls `set_epoch`. Samplers
    with `shuffle=False` and those for validation are not reported, nor benchmarks and scripts that a framework drives.

    Why: the sampler shuffles with seed + epoch, and the epoch stays 0: in a run of 90 epochs all 90 have one order, and
    each rank sees only its own 1/8 of the data on 8 ranks, the same in every epoch.

    Fix: `sampler.set_epoch(epoch)` at the start of every epoch.

    Source: PyTorch 2.9, torch.utils.data.distributed.DistributedSampler.

    When to ignore: the same order is wanted, to compare runs.
    """
    script = script_of(file)
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


def _several(count: ast.expr) -> bool:
    """Whether a loop has more than one turn, as far as one sees."""
    return not (isinstance(count, ast.Call) and count.args and getattr(count.args[-1], "value", 2) in (0, 1))


def _statement(parents: dict[ast.AST, ast.AST], node: ast.AST) -> str:
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
    return ast.unparse(node)
