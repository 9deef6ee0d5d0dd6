"""Which lines of a training script rank 0 alone runs: those in `if rank == 0`, under whatever name the script has for
it, and those behind `if rank != 0: return`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check.programs.python_names import Parents, bindings, scope_of

_FIRST_RANK = re.compile(r"(?:\w+\.)*(?:(?:global_|world_|ddp_)?rank|get_rank\(\)) == 0")
_OTHER_RANKS = re.compile(r"(?:\w+\.)*(?:(?:global_|world_|ddp_)?rank|get_rank\(\)) (?:!= 0|> 0)")
_READS_RANK = re.compile(r"(?:\w+\.)*get_rank\(\)|int\(os\.(?:environ\[|environ\.get\(|getenv\()'RANK'[^()]*[\])]\)")
_STARTED = re.compile(r"is_initialized|is_available|distributed|ddp|world_size", re.IGNORECASE)
_OPTION = re.compile(r"\w*(args|opt|cfg|config)\w*\.rank ")  # which may count nodes
_NODES = re.compile(r"rank of (the |this )?node|node.?rank", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Words of a condition that decides who runs a branch.
RANK_WORDS = re.compile(
    r"rank|main_process|is_main|master|gpu_id|is_primary|is_chief|\blead|is_zero|root_process|is_root"
    r"|distributed|ddp|world_size|num_processes|num_nodes|\bgpu\b|process_id|process_index|worker_id|device_id",
    re.IGNORECASE,
)
_LINKS = 2  # from a condition over a name to the rank
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def of_the_first_rank(node: ast.AST, parents: Parents) -> ast.If | None:
    """The `if` without an else that lets rank 0 alone reach a node, in the same function."""
    while node in parents:
        above = parents[node]
        if isinstance(above, ast.If) and node in above.body and asks_first(above.test, parents):
            return above if not above.orelse and not _counts_nodes(above.test, parents) else None
        earlier = _left_by_others(above, node, parents)
        if earlier is not None:
            return earlier
        if isinstance(above, _FUNCTIONS):
            return None
        node = above
    return None


def asks_first(test: ast.expr, parents: Parents, depth: int = 0) -> bool:
    """Whether a condition holds on rank 0 only: `rank == 0`, alone or with `and`, itself or by its name."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(asks_first(one, parents, depth) for one in test.values)
    if isinstance(test, ast.BoolOp):  # `not dist.is_initialized() or dist.get_rank() == 0`
        others = [one for one in test.values if not asks_first(one, parents, depth)]
        return len(others) < len(test.values) and all(_STARTED.search(ast.unparse(one)) for one in others)
    if _FIRST_RANK.fullmatch(ast.unparse(_in_order(test))):
        return True
    if isinstance(test, ast.Compare):
        return _is_zero(test) and any(_is_rank(one, parents) for one in (test.left, *test.comparators))
    return depth < 2 and _means_first(test, parents, depth + 1)


def asks_for_rank(test: ast.expr, parents: Parents, words: re.Pattern[str] = RANK_WORDS, depth: int = 0) -> bool:
    """Whether a condition speaks of ranks, in its own words or by a name that was given one (`r = get_rank()`). A
    parameter alone (`if main:`) may be one: its callers know."""
    if words.search(ast.unparse(test)) or _is_parameter(test, parents):
        return True
    names = {ast.unparse(one) for one in ast.walk(test) if isinstance(one, ast.Name | ast.Attribute)}
    given = [node for node in parents if isinstance(node, ast.Assign) and depth < _LINKS and _sets(node, names)]
    return any(_gives_rank(node.value, parents, words, depth + 1) for node in given)


def _sets(node: ast.Assign, names: set[str]) -> bool:
    return any(ast.unparse(one) in names for target in node.targets for one in _parts(target))


def _parts(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.Tuple | ast.List) else [value]


def _gives_rank(value: ast.expr, parents: Parents, words: re.Pattern[str], depth: int) -> bool:
    """Whether a value is a rank or a question about one: what a function makes of a rank is neither."""
    for one in _parts(value):
        if isinstance(one, ast.Compare | ast.BoolOp | ast.UnaryOp):
            if asks_for_rank(one, parents, words, depth):
                return True
        elif isinstance(one, ast.Call):
            texts = [ast.unparse(one.func), *(n.value for n in ast.walk(one) if isinstance(n, ast.Constant))]
            if any(words.search(str(text)) for text in texts):
                return True
        elif words.search(ast.unparse(one)):
            return True
    return False


def _is_parameter(test: ast.expr, parents: Parents) -> bool:
    """Whether a condition is a parameter of its function, or an attribute that was given one: itself, with `not`, or
    compared with 0."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_parameter(test.operand, parents)
    if isinstance(test, ast.Compare) and [ast.unparse(one) for one in test.comparators] == ["0"]:
        return _is_parameter(test.left, parents)
    if isinstance(test, ast.Attribute):
        given = bindings(parents, test)
        return any(isinstance(one, ast.Name) and _is_parameter(one, parents) for one in given)
    around = scope_of(parents, test) if isinstance(test, ast.Name) else None
    arguments = ast.walk(around.args) if isinstance(around, _FUNCTIONS) else ()
    return any(isinstance(one, ast.arg) and one.arg == getattr(test, "id", "") for one in arguments)


def _in_order(test: ast.expr) -> ast.expr:
    """`0 == rank` the other way round."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Constant):
        return ast.Compare(test.comparators[0], test.ops, [test.left])
    return test


def _is_zero(test: ast.Compare) -> bool:
    sides = (test.left, *test.comparators)
    return len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq) and any(ast.unparse(one) == "0" for one in sides)


def _is_rank(value: ast.expr, parents: Parents) -> bool:
    """Whether an expression reads the rank, or is a name of this file for what does."""
    if isinstance(value, ast.Name):
        given = _values(value, parents)
        return len(given) == 1 and given[0] is not None and _READS_RANK.fullmatch(ast.unparse(given[0])) is not None
    return _READS_RANK.fullmatch(ast.unparse(value)) is not None


def _means_first(test: ast.expr, parents: Parents, depth: int) -> bool:
    """A name that was given `rank == 0`, or a function of this file that returns it."""
    if isinstance(test, ast.Name):
        given = _values(test, parents)
        return len(given) == 1 and given[0] is not None and asks_first(given[0], parents, depth)
    if not isinstance(test, ast.Call) or test.args or test.keywords or not isinstance(test.func, ast.Name):
        return False
    named = [one for one in parents if isinstance(one, ast.FunctionDef) and one.name == test.func.id]
    returned = [one.value for one in ast.walk(named[0]) if isinstance(one, ast.Return)] if len(named) == 1 else []
    return len(returned) == 1 and returned[0] is not None and asks_first(returned[0], parents, depth)


def _values(name: ast.Name, parents: Parents) -> list[ast.expr | None]:
    """What a name is given in its function, else in the module."""
    here = bindings(parents, name)
    if here or isinstance(scope_of(parents, name), ast.Module):
        return here
    assigned = (node for node, above in parents.items() if isinstance(node, ast.Assign | ast.AnnAssign))
    return [
        node.value
        for node in assigned
        if isinstance(parents[node], ast.Module)
        and name.id in map(ast.unparse, node.targets if isinstance(node, ast.Assign) else [node.target])
    ]


def _left_by_others(above: ast.AST, node: ast.AST, parents: Parents) -> ast.If | None:
    """`if rank != 0: return` before a node, in the statements that hold it."""
    for block in _blocks_of(above):
        if node in block:
            for statement in block[: block.index(node)]:
                if isinstance(statement, ast.If) and _is_left(statement, parents):
                    return statement
    return None


def _is_left(statement: ast.If, parents: Parents) -> bool:
    test = statement.test
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and asks_first(test.operand, parents)
    others = _OTHER_RANKS.fullmatch(ast.unparse(test)) is not None and not _counts_nodes(test, parents)
    leaves = len(statement.body) == 1 and isinstance(statement.body[0], ast.Return | ast.Continue)
    return (negated or others) and leaves and not statement.orelse


def _blocks_of(node: ast.AST) -> Iterator[list[ast.AST]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def leaves_early(branch: ast.If) -> bool:
    """Whether rank 0 goes elsewhere at the end of a branch: the lines below are then those of the other ranks."""
    if len(branch.body) == 1 and isinstance(branch.body[0], ast.Return | ast.Continue):
        return False  # that of the other ranks
    inside = [node for statement in branch.body for node in ast.walk(statement)]
    return any(isinstance(node, _LEAVES) or _ends(node) for node in inside)


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("exit", "sys.exit", "os._exit", "quit")


def _counts_nodes(test: ast.expr, parents: Parents) -> bool:
    """Whether the rank is an option that the script's help calls the node's."""
    texts = (node.value for node in parents if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return _OPTION.match(ast.unparse(test)) is not None and any(_NODES.search(text) for text in texts)
