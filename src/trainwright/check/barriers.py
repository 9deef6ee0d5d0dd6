"""Barriers of a training script that one rank alone reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

_FIRST_RANK = re.compile(r"(?:\w+\.)*(?:(?:global_)?rank|get_rank\(\)) == 0")


def lonely_barriers(barriers: list[ast.Call], parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.Call]:
    """The script's only barrier, if it stands in the body of `if rank == 0`. Of two, the other ranks may meet it in
    the second."""
    if len(barriers) != 1 or barriers[0].args or barriers[0].keywords:  # a group may be of fewer ranks
        return
    node: ast.AST = barriers[0]
    while node in parents:
        above = parents[node]
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(above, ast.If) and node in above.body and _FIRST_RANK.fullmatch(ast.unparse(above.test)):
            yield barriers[0]
            return
        node = above
