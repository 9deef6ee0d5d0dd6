"""Whether a program saves below the directory of one of its options, under names that are the same in every run."""

from __future__ import annotations

import ast
import re

from trainwright.check.programs.barriers import last
from trainwright.check.programs.final_paths import final_path
from trainwright.check.programs.python_names import bindings
from trainwright.check.programs.training_script import Script, name_of, script_in

_JOINS = {"join", "Path", "PurePath", "str", "int", "abspath", "realpath", "expanduser", "normpath", "fspath"}
_METHODS = {"joinpath", "format", "with_suffix", "with_name", "expanduser", "resolve", "absolute", "as_posix"}
_COUNTER = re.compile(r"(global|current|cur|train)?_?(step|epoch|iter|iteration|it|batch)(_?(num|idx|no))?")
_SETTINGS = re.compile(r"(self\.)?(args?|opts?|options|cfg|config|flags|hparams|params)", re.IGNORECASE)
_ASKED_FOR = re.compile(r"(?<!% )\b(args?|opts?|options|cfg|config|flags|hparams)\.\w+", re.IGNORECASE)
_DEPTH = 6  # from a name to what it was given
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def saves_below(text: str, option: str) -> bool:
    """Whether a call that saves has a path of the option's value, text and counters of steps alone."""
    script = script_in(text) if re.search(rf"\b{option}\b", text) and "chdir(" not in text else None
    if script is None or re.search(rf"""(\.{option}|\[["']{option}["']\])\s*([-+*/|&%^@]|//)?=(?!=)|setattr\(""", text):
        return False
    return any(_parts(script, path, option) for path in _saved(script))


def _saved(script: Script) -> list[ast.expr]:
    """The paths that the calls of a script save to."""
    paths: list[ast.expr] = []
    for name in ("torch.save", "save_file", "save_pretrained", "checkpoint.save", "dcp.save"):
        for call in script.calls(name):
            given = [word.value for word in call.keywords if word.arg == "checkpoint_id"]
            if name == "save_pretrained":
                given = call.args[:1]
            elif name in ("torch.save", "save_file") and len(call.args) > 1:
                given = [final_path(script, call)]
            paths += [] if _is_optional(script, call) else given
    return paths


def _is_optional(script: Script, node: ast.AST, depth: int = 2) -> bool:
    """Whether an option decides that a call runs, itself or in the function that holds it (`if args.save_model:`)."""
    for above in script.above(node):
        if isinstance(above, ast.If) and _ASKED_FOR.search(ast.unparse(above.test)):
            return True
        if isinstance(above, _FUNCTION):
            calls = [call for call in script.calls(above.name) if call is not node]
            return depth > 0 and any(_is_optional(script, call, depth - 1) for call in calls)
    return False


def _parts(script: Script, node: ast.AST | None, option: str, depth: int = _DEPTH) -> bool | None:
    """Whether an expression holds the option; None where it may hold something that differs between runs."""
    if node is None or depth == 0:
        return None
    if isinstance(node, ast.Constant):
        return False
    if isinstance(node, ast.Attribute):
        if node.attr == option:
            return True
        return False if _COUNTER.fullmatch(node.attr) and not _SETTINGS.fullmatch(ast.unparse(node.value)) else None
    if isinstance(node, ast.Name):
        values = bindings(script.parents, node)
        counts = _COUNTER.fullmatch(node.id) and (len(values) != 1 or values[0] is None)
        return False if counts else _of_name(script, node, option, depth)
    return _all(script, _inside(node), option, depth)


def _all(script: Script, nodes: list[ast.expr | None], option: str, depth: int) -> bool | None:
    answers = [_parts(script, one, option, depth - 1) for one in nodes]
    return None if None in answers or not answers else any(answers)


def _inside(node: ast.AST) -> list[ast.expr | None]:
    """The expressions that a path is put together of; a None among them where others may decide, too."""
    if isinstance(node, ast.JoinedStr):
        return [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Tuple):
        return [*node.elts]
    if isinstance(node, ast.Call):
        given = [*node.args, *(word.value for word in node.keywords)]
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and last(node) in _METHODS and not name_of(owner).endswith(("path", "os", "pathlib")):
            return [owner, *given]
        return [*given] if last(node) in _JOINS else [None]
    return [None]


def _of_name(script: Script, name: ast.Name, option: str, depth: int) -> bool | None:
    """What a name was given: in its function, by the calls of the function, or in the module."""
    values = bindings(script.parents, name)
    function = next((one for one in script.above(name) if isinstance(one, _FUNCTION)), None)
    parameters = [one.arg for one in function.args.args] if function is not None else []
    if function is not None and name.id in parameters and len(values) == 1:
        calls = [call for call in script.calls(function.name) if isinstance(call.func, ast.Name)]
        given = [_argument(call, parameters.index(name.id), name.id) for call in calls]
        return _all(script, given, option, depth)
    if not values and function is not None:
        tops = [node for node in script.tree.body if isinstance(node, ast.Assign)]
        values = [node.value for node in tops if name.id in map(ast.unparse, node.targets)]
    return _all(script, values, option, depth) if len(values) == 1 else None


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    words = {word.arg: word.value for word in call.keywords}
    return words.get(name) or (call.args[place] if len(call.args) > place else None)
