"""Barriers of a training script that one rank alone reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check.python_names import Parents, origin

_FIRST_RANK = re.compile(r"(?:\w+\.)*(?:(?:global_)?rank|get_rank\(\)) == 0")
_OPTION = re.compile(r"\w*(args|opt|cfg|config)\w*\.rank ")  # which may count nodes
_NODES = re.compile(r"rank of (the |this )?node|node.?rank", re.IGNORECASE)
_MEETS = re.compile(r"(^|\.)(synchronize|sync\w*|wait_for\w*|\w*barrier|rendezvous|zero_first\w*)$")


def lonely_barriers(barriers: list[ast.Call], parents: Parents) -> Iterator[ast.Call]:
    """The script's only barrier, if it stands in the body of `if rank == 0`. Of two, the other ranks may meet it in
    the second; so they may where a function of another file waits."""
    if len(barriers) != 1 or barriers[0].args or barriers[0].keywords:  # a group may be of fewer ranks
        return
    if origin(parents, barriers[0].func) != "torch.distributed.barrier" or _meets_elsewhere(barriers[0], parents):
        return
    node: ast.AST = barriers[0]
    while node in parents:
        above = parents[node]
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(above, ast.If) and node in above.body and _FIRST_RANK.fullmatch(ast.unparse(above.test)):
            if not above.orelse and not _counts_nodes(above.test, parents):
                yield barriers[0]
            return
        node = above


def _meets_elsewhere(barrier: ast.Call, parents: Parents) -> bool:
    calls = (node for node in parents if isinstance(node, ast.Call) and node is not barrier)
    names = (ast.unparse(call.func) for call in calls)
    return any(_MEETS.search(name) and ".cuda." not in name for name in names)


def _counts_nodes(test: ast.expr, parents: Parents) -> bool:
    """Whether the rank is an option that the script's help calls the node's."""
    texts = (node.value for node in parents if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return _OPTION.match(ast.unparse(test)) is not None and any(_NODES.search(text) for text in texts)
