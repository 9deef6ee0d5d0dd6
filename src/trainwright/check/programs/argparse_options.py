"""The options of a script's own argparse parser, where all of them are in that file: read from its syntax tree, without
running it. A parser that leaves the file, or is more than argparse's own, has options that nobody sees here."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
_HARMLESS = {
    "add_argument", "parse_args", "set_defaults", "get_default", "print_help", "print_usage", "format_help",
    "format_usage", "error", "exit", "description", "epilog", "prog", "usage", "_actions", *_GROUPS,
}  # fmt: skip
_OPEN_NAMES = {
    "HfArgumentParser", "TrlParser", "parse_known_args", "parse_known_intermixed_args", "parse_intermixed_args",
    "add_subparsers", "jsonargparse", "tyro", "hydra", "fire", "simple_parsing", "configargparse", "REMAINDER",
    "typer", "click", "absl", "docopt", "from_cli", "LightningCLI", "draccus", "pyrallis", "chz",
}  # fmt: skip
_NEW, _OTHER = "new parser", "no parser"  # among the names of expressions, which have no blanks
_CHANGES = {"append", "remove", "insert", "pop", "extend", "index", "clear"}  # of sys.argv


def argparse_options(text: str) -> tuple[dict[str, bool], bool] | None:
    """Each option with whether it takes a value, and whether abbreviations are accepted; None where it is open."""
    try:
        reader = _Reader(ast.parse(text))
        return (reader.options(), reader.abbreviates) if reader.is_closed() else None
    except (SyntaxError, ValueError, RecursionError):  # the last: of one expression, nested too deep for `ast.unparse`
        return None


class _Reader:
    """One script: its parsers by the expressions that name them (`parser`, `self.parser`, `group`)."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.functions = {node.name: node for node in self.nodes if isinstance(node, ast.FunctionDef)}
        self.classes = {
            alias.asname or alias.name
            for node in self.nodes
            if isinstance(node, ast.ImportFrom) and node.module == "argparse"
            for alias in node.names
            if alias.name == "ArgumentParser"
        }
        self.modules = {
            alias.asname or alias.name
            for node in self.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "argparse"
        }
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.made = {call for call in self.calls if self._makes(call)}
        self.abbreviates = not any(
            key.arg == "allow_abbrev" and isinstance(key.value, ast.Constant) and key.value.value is False
            for call in self.made
            for key in call.keywords
        )
        self.holders = _conclusions(self._implications())

    def _makes(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Name):
            return call.func.id in self.classes
        return isinstance(call.func, ast.Attribute) and _dotted(call.func) in {
            f"{module}.ArgumentParser" for module in self.modules
        }

    def _implications(self) -> Iterator[tuple[set[str], str]]:
        """Which expressions hold a parser if certain others do: by assignment, as an argument, as a return value."""
        for node in self.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    yield {self._holder(node.value)}, _dotted(target)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                parameters = self.functions[node.func.id].args.args
                for parameter, given in zip(parameters, node.args, strict=False):
                    yield {self._holder(given)}, parameter.arg
        for name, function in self.functions.items():
            returned = {self._holder(one.value) for one in ast.walk(function) if isinstance(one, ast.Return)}
            if returned:
                yield returned, f"{name}()"

    def _holder(self, node: ast.AST | None) -> str:
        """What an expression takes its parser from: a name, `function()`, a new parser; a group is its parser."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROUPS:
            node = node.func.value
        if not isinstance(node, ast.Call):
            return _dotted(node) or _OTHER
        if node in self.made:
            return _NEW
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        return f"{called}()" if called in self.functions else _OTHER

    def is_parser(self, node: ast.AST) -> bool:
        """Whether an expression is a parser or a group of one."""
        return self._holder(node) in self.holders

    def is_closed(self) -> bool:
        """Whether the file holds every option of a parser that reads the command line."""
        if not self.made or any(self._is_open(node) for node in self.nodes):
            return False
        if not all(self._stays(node) for node in self.nodes if isinstance(node, ast.Name | ast.Attribute)):
            return False
        parses = [call for call in self.calls if _method(call) == "parse_args"]
        known = all(isinstance(call.func, ast.Attribute) and self.is_parser(call.func.value) for call in parses)
        return known and any(self._reads_command_line(call) for call in parses)

    def _is_open(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = (
                node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.name
            )
            return name.partition(".")[0] in _OPEN_NAMES or self._changes_argv(node)
        if isinstance(node, ast.ImportFrom):
            return (node.module or "").partition(".")[0] in _OPEN_NAMES
        if isinstance(node, ast.Call) and node in self.made:
            parents = next((key.value for key in node.keywords if key.arg == "parents"), None)
            others = parents.elts if isinstance(parents, ast.List | ast.Tuple) else [parents] if parents else []
            special = any(key.arg in ("fromfile_prefix_chars", "prefix_chars", None) for key in node.keywords)
            return special or not all(self.is_parser(one) for one in others)
        if isinstance(node, ast.Call) and _method(node) == "add_argument":
            return not all(_strings(one) for one in node.args) or any(_is_rest(key) for key in node.keywords)
        return False

    def _changes_argv(self, node: ast.AST) -> bool:
        """Whether `sys.argv` is written, or searched in a way that comes before writing."""
        if not isinstance(node, ast.Attribute) or _dotted(node) != "sys.argv":
            return False
        above = self.parents.get(node)
        if isinstance(node.ctx, ast.Store | ast.Del):
            return True
        if isinstance(above, ast.Subscript):
            return isinstance(above.ctx, ast.Store | ast.Del)
        return isinstance(above, ast.Attribute) and above.attr in _CHANGES

    def _stays(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether a use of a parser keeps it in the file: its own methods, a return, a function of this file."""
        if not self.is_parser(node) or not isinstance(node.ctx, ast.Load):
            return True
        above = self.parents.get(node)
        if isinstance(above, ast.Attribute):
            called = isinstance(self.parents.get(above), ast.Call) or above.attr not in _GROUPS
            return above.attr in _HARMLESS and (called and not self._is_passed(above))
        if isinstance(above, ast.Call) and node in above.args:
            return isinstance(above.func, ast.Name) and above.func.id in self.functions
        held = isinstance(above, ast.Return | ast.Assign | ast.AnnAssign | ast.Expr)
        return held or (isinstance(above, ast.List | ast.Tuple) and self._is_parents(above))

    def _is_passed(self, method: ast.Attribute) -> bool:
        """Whether a method is taken without a call: `add = parser.add_argument`."""
        above = self.parents.get(method)
        return method.attr.startswith(("add_", "parse_")) and not (isinstance(above, ast.Call) and above.func is method)

    def _is_parents(self, listed: ast.AST) -> bool:
        above = self.parents.get(listed)
        return isinstance(above, ast.keyword) and above.arg == "parents"

    def _reads_command_line(self, call: ast.Call) -> bool:
        given = [*call.args, *(key.value for key in call.keywords if key.arg != "namespace")]
        return all(ast.unparse(one) in ("sys.argv[1:]", "None") or self._defaults_to_none(one) for one in given)

    def _defaults_to_none(self, node: ast.AST) -> bool:
        """`def main(argv=None): parser.parse_args(argv)`."""
        function: ast.AST | None = node
        while function is not None and not isinstance(function, ast.FunctionDef):
            function = self.parents.get(function)
        if function is None or not isinstance(node, ast.Name):
            return False
        plain = function.args.args
        with_default = dict(zip([one.arg for one in plain][::-1], function.args.defaults[::-1], strict=False))
        default = with_default.get(node.id)
        return isinstance(default, ast.Constant) and default.value is None

    def options(self) -> dict[str, bool]:
        """Every option of every parser of the file; a positional argument is none."""
        names = {"-h": False, "--help": False}
        for call in self.calls:
            if _method(call) != "add_argument":
                continue
            action = next((ast.unparse(key.value) for key in call.keywords if key.arg == "action"), "")
            flags = [name for one in call.args for name in _strings(one) if name.startswith("-")]
            names |= dict.fromkeys(flags, not action.strip("'\"").startswith(("store_", "count", "help", "version")))
            if "BooleanOptionalAction" in action:
                names |= {f"--no-{name[2:]}": False for name in flags}
        return names


def _conclusions(implications: Iterable[tuple[set[str], str]]) -> set[str]:
    """What holds a parser if a new parser does: the least set, so that a function that returns only itself is none."""
    missing: list[tuple[set[str], str]] = []
    waiting: dict[str, list[tuple[set[str], str]]] = {}
    for premises, conclusion in implications:
        missing.append((set(premises), conclusion))
        for premise in premises:
            waiting.setdefault(premise, []).append(missing[-1])
    holders, new = {_NEW}, [_NEW]
    while new:
        holder = new.pop()
        for premises, conclusion in waiting.get(holder, ()):
            premises.discard(holder)
            if not premises and conclusion and conclusion not in holders:
                holders.add(conclusion)
                new.append(conclusion)
    return holders


def _dotted(node: ast.AST | None) -> str:
    """`parser` and `self.parser`; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _strings(node: ast.AST) -> list[str]:
    """The texts that an argument of `add_argument` holds; none where they are made at run time."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.List | ast.Tuple):
        inside = [_strings(one) for one in node.value.elts]
        return [text for texts in inside for text in texts] if all(inside) else []
    return []


def _is_rest(key: ast.keyword) -> bool:
    """`nargs="..."`: all that follows, whatever it looks like."""
    return key.arg == "nargs" and isinstance(key.value, ast.Constant) and key.value.value == "..."
