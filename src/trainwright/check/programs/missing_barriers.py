"""Files that rank 0 writes and that every rank reads at once, with nothing between that waits for rank 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, last
from trainwright.check.programs.final_paths import names_a_rank
from trainwright.check.programs.first_rank import asks_first, leaves_early
from trainwright.check.programs.python_names import Parents, bindings, origin

_WRITES = {"torch.save": 1, "numpy.save": 0, "numpy.savez": 0}
_READS = ("torch.load", "numpy.load", "pandas.read_csv", "pandas.read_parquet")
_TABLES = ("to_csv", "to_parquet")  # of a frame, to the path that comes first
_PATH_WRITES, _PATH_READS = ("write_text", "write_bytes"), ("read_text", "read_bytes")
_MAY_NOT = (ast.IfExp, ast.BoolOp, ast.Lambda)  # what is below them, some ranks may leave out
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
                line = paths[_path_read(read, parents)]
                what = f"every rank reads what rank 0 writes in line {line}, and none waits for it"
                yield Lonely(read, what, "call dist.barrier() on every rank before it", reasons.READ_TOO_EARLY)
                return
            if not _goes_on(later) or _gives_another(later, paths):
                break


def _written(branch: ast.If, parents: Parents) -> dict[str, int]:
    """The paths that rank 0 writes in a branch of its own, each with its line."""
    if branch.orelse or not asks_first(branch.test, parents) or leaves_early(branch) or _waits(branch.body):
        return {}
    written = {}
    for call in _own_calls(branch.body):
        for path in (_path_written(call, parents), *_written_by(call, parents)):
            if path is not None and not names_a_rank(parents, path):
                written[ast.unparse(path)] = call.lineno
    return written


def _waits(body: list[ast.stmt]) -> bool:
    calls = (node for one in body for node in ast.walk(one) if isinstance(node, ast.Call))
    return any(_WAITS.search(ast.unparse(call.func)) for call in calls)


def _own_calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that statements are, and those that open a file for the statements below `with`."""
    for one in body:
        values = (
            [item.context_expr for item in one.items] if isinstance(one, ast.With) else [getattr(one, "value", None)]
        )
        for value in values if isinstance(one, ast.With | ast.Expr) else ():
            if isinstance(value, ast.Call):
                yield value
                yield from (arg for arg in value.args if isinstance(arg, ast.Call))  # json.dump(x, open(path, "w"))


def _path_written(call: ast.Call, parents: Parents) -> ast.expr | None:
    """The path that a call writes."""
    place = _WRITES.get(origin(parents, call.func), 0 if last(call) in _TABLES else None)
    if place is not None:
        return call.args[place] if len(call.args) > place else None
    if isinstance(call.func, ast.Attribute):
        return call.func.value if call.func.attr in _PATH_WRITES or _opens(call, parents, "w") else None
    return call.args[0] if last(call) == "open" and _mode(call).startswith("w") else None


def _opens(call: ast.Call, parents: Parents, mode: str) -> bool:
    """Whether a call is `path.open("w")` of a path, no function of a module."""
    if last(call) != "open" or call.keywords or len(call.args) > 1 or origin(parents, call.func):
        return False
    return re.fullmatch(rf"'{mode}[bt]?'", ast.unparse(call.args[0]) if call.args else "'r'") is not None


def _mode(call: ast.Call) -> str:
    """How `open` opens a file; empty where the script does not show it."""
    given = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    if not call.args or any(word.arg is None for word in call.keywords):
        return ""
    return str(given[0].value) if given and isinstance(given[0], ast.Constant) else "" if given else "r"


def _written_by(call: ast.Call, parents: Parents) -> Iterator[ast.expr]:
    """What a call gives to the parameters that its function, one of the script, takes for paths and writes."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    named = [one for one in parents if isinstance(one, ast.FunctionDef) and one.name == name]
    if len(named) != 1 or named[0].decorator_list or _waits(named[0].body):
        return
    parameters = [one.arg for one in named[0].args.args]
    given = {**dict(zip(parameters, call.args, strict=False)), **{w.arg: w.value for w in call.keywords if w.arg}}
    for inner in _own_calls(named[0].body) if not any(isinstance(one, ast.Starred) for one in call.args) else ():
        path = _path_written(inner, parents)
        # Given nothing else in the function: it is the parameter.
        if isinstance(path, ast.Name) and path.id in given and bindings(parents, path) == [None]:
            yield given[path.id]


def _path_read(call: ast.Call, parents: Parents) -> str:
    """The path that a call reads; empty for any other call."""
    if isinstance(call.func, ast.Attribute) and (call.func.attr in _PATH_READS or _opens(call, parents, "r")):
        return ast.unparse(call.func.value)
    reads = origin(parents, call.func) in _READS or (
        isinstance(call.func, ast.Name) and call.func.id == "open" and _mode(call).startswith("r")
    )
    return ast.unparse(call.args[0]) if reads and call.args else ""


def _read(statement: ast.stmt, paths: dict[str, int], parents: Parents) -> ast.Call | None:
    """The call of a plain statement, or of the first line of `with`, that reads one of the paths."""
    roots: list[ast.AST] = [statement] if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) else []
    roots += [item.context_expr for item in statement.items] if isinstance(statement, ast.With) else []
    calls = (node for root in roots for node in ast.walk(root) if isinstance(node, ast.Call))
    return next((one for one in calls if _path_read(one, parents) in paths and _is_certain(one, parents)), None)


def _is_certain(call: ast.Call, parents: Parents) -> bool:
    """Whether every rank that comes to the statement makes the call."""
    node: ast.AST = call
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
        if isinstance(node, _MAY_NOT):
            return False
    return True


def _gives_another(statement: ast.stmt, paths: dict[str, int]) -> bool:
    """Whether a statement gives a name of one of the paths another value."""
    stored = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(stored & set(re.findall(r"\w+", path)) for path in paths)


def _goes_on(statement: ast.stmt) -> bool:
    """Whether a statement is a plain one that waits for no other rank."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
        return False
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return all(_QUICK.search(ast.unparse(call.func)) and not _WAITS.search(last(call)) for call in calls)
