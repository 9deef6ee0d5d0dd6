"""Where what a script saves ends up: a temporary file is shared by all ranks if the file it is renamed to is."""

from __future__ import annotations

import ast
import re

from trainwright.check.programs.python_names import Parents, bindings, scope_of
from trainwright.check.programs.training_script import Script, name_of

_RENAMES = ("os.replace", "os.rename", "shutil.move")
_OWN_NAME = re.compile(r"rank|getpid|uuid|tempfile|mkstemp|mkdtemp|rand|time", re.IGNORECASE)


def final_path(script: Script, save: ast.Call) -> ast.expr:
    """The path that `torch.save` is given, or the one that its function renames it to, where all ranks share both."""
    path = save.args[1]
    values = bindings(script.parents, path) if isinstance(path, ast.Name) else []
    if any(_OWN_NAME.search(ast.unparse(one)) for one in (path, *values) if one is not None):
        return path
    calls = (node for node in ast.walk(scope_of(script.parents, save)) if isinstance(node, ast.Call))
    return next((to for call in calls if (to := _renamed(call, ast.unparse(path))) is not None), path)


def names_a_rank(parents: Parents, path: ast.expr) -> bool:
    """Whether a path, or what its name was given, holds the number of a rank: each rank has another file."""
    values = bindings(parents, path) if isinstance(path, ast.Name | ast.Attribute) else []
    return any("rank" in ast.unparse(one) for one in (path, *values) if one is not None)


def _renamed(call: ast.Call, path: str) -> ast.expr | None:
    """What a call renames a path to: `os.replace(path, to)` or `path.rename(to)`."""
    if name_of(call.func) in _RENAMES and len(call.args) == 2 and ast.unparse(call.args[0]) == path:
        return call.args[1]
    method = call.func if isinstance(call.func, ast.Attribute) and call.func.attr in ("rename", "replace") else None
    return call.args[0] if method and ast.unparse(method.value) == path and len(call.args) == 1 else None
