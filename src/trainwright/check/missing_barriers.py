"""Files that rank 0 writes and that every rank reads at once, with nothing between that waits for rank 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.barriers import Lonely, last
from trainwright.check.final_paths import names_a_rank
from trainwright.check.first_rank import asks_first, leaves_early
from trainwright.check.python_names import Parents, origin

_WRITES = {"torch.save": 1, "numpy.save": 0, "numpy.savez": 0}
_READS = ("torch.load", "numpy.load")
_WAITS = re.compile(r"barrier|sync|wait|reduce|broadcast|gather|monitored", re.IGNORECASE)
# Calls between the two that meet no other rank.
_QUICK = re.compile(r"(^|\.)(print|info|debug|len|int|str|float|join|format|time|Path|get_rank|get_world_size|device)$")


def missing_barriers(parents: Parents) -> Iterator[Lonely]:
    """`if rank == 0: torch.save(x, path)`, and in the next lines `torch.load(path)` on all ranks."""
    for node in dict.fromkeys(parents.values()):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and len(block) > 1:
                yield from _in_block(block, parents)


def _in_block(block: list[ast.stmt], parents: Parents) -> Iterator[Lonely]:
    for number, statement in enumerate(block[:-1]):
        paths = _written(statement, parents) if isinstance(statement, ast.If) else {}
        for later in block[number + 1 :] if paths else ():
            read = _read(later, paths, parents)
            if read is not None:
                line = paths[_path(read, 0)]
                what = f"every rank reads what rank 0 writes in line {line}, and none waits for it"
                yield Lonely(read, what, "call dist.barrier() on every rank before it", reasons.READ_TOO_EARLY)
                return
            if not _goes_on(later):
                break


def _written(branch: ast.If, parents: Parents) -> dict[str, int]:
    """The paths that rank 0 writes in a branch of its own, each with its line."""
    calls = [node for one in branch.body for node in ast.walk(one) if isinstance(node, ast.Call)]
    if branch.orelse or not asks_first(branch.test, parents) or leaves_early(branch):
        return {}
    if any(_WAITS.search(ast.unparse(call.func)) for call in calls):
        return {}
    own = (one.value for one in branch.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call))
    written = {}
    for call in own:
        place = _WRITES.get(origin(parents, call.func))
        if place is not None and len(call.args) > place and not names_a_rank(parents, call.args[place]):
            written[_path(call, place)] = call.lineno
    return written


def _path(call: ast.Call, place: int) -> str:
    return ast.unparse(call.args[place])


def _read(statement: ast.stmt, paths: dict[str, int], parents: Parents) -> ast.Call | None:
    """The call of a plain statement that reads one of the paths."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
        return None
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.args)
    return next((one for one in calls if _path(one, 0) in paths and origin(parents, one.func) in _READS), None)


def _goes_on(statement: ast.stmt) -> bool:
    """Whether a statement is a plain one that waits for no other rank."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
        return False
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return all(_QUICK.search(ast.unparse(call.func)) and not _WAITS.search(last(call)) for call in calls)
