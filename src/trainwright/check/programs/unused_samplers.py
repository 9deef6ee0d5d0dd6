"""Samplers of a script that divide no data of the training: of no loader, of one for validation, or None."""

from __future__ import annotations

import ast
import re

from trainwright.check.programs.training_script import Script, name_of

_SAMPLER = re.compile(r"sampler", re.IGNORECASE)
_WHOLE = re.compile(r"([\w.]+\.)?(Weighted)?(Random|Sequential)Sampler")
_UNDIVIDED = re.compile(rf"\bDistributedSampler\b|\b(sampler\s*=\s*)?{_WHOLE.pattern}\b|\bsampler\s*=\s*None\b")
_COMMENT = re.compile(r"#.*\bsamplers?\b.*", re.IGNORECASE)
_OF_VALIDATION = re.compile(r"(?<![a-z])(val|test|eval)", re.IGNORECASE)


def text_without_unused(script: Script, text: str) -> str:
    """The text without its samplers, where no loader is given them, or one for validation only."""
    rest, samplers = text, script.calls("DistributedSampler")
    for call in samplers:
        names = _names(script, call)
        uses = [use for use in _uses(script, names) if not _is_looked_at(script, use)]
        unused = len(names) == 1 and all(_is_of_validation(script, use) for use in uses)
        received: list[str] | None = []
        if unused and not uses and _is_returned(script, names):
            received = _received(script, names)
        if (not unused or received is None) and not _is_of_validation(script, call):
            return text
        written = "|".join(["DistributedSampler", *map(re.escape, [*names, *(received or ())])])
        rest = re.sub(rf"\b(sampler\s*=\s*)?({written})\b", "", rest)
    if not samplers and not _is_imported_only(script):
        return text
    for name in sorted(_without_a_value(script)):
        rest = re.sub(rf"(?<![\w.])(\w*sampler\s*=\s*)?{name}\b", "", rest)
    return _UNDIVIDED.sub("", _COMMENT.sub("", rest))


def _is_imported_only(script: Script) -> bool:
    """Whether nothing but imports names the sampler, or the script has samplers only that divide nothing."""
    nodes = (node for node in script.parents if isinstance(node, ast.Name | ast.Attribute))
    return not any(ast.unparse(node).rpartition(".")[2] == "DistributedSampler" for node in nodes)


def gives_all(sampler: ast.expr) -> bool:
    """Whether what a loader is given as its sampler is None, or one that takes from the whole data."""
    name = name_of(sampler.func) if isinstance(sampler, ast.Call) else ""
    return getattr(sampler, "value", sampler) is None or _WHOLE.fullmatch(name) is not None


def _names(script: Script, sampler: ast.Call) -> list[str]:
    """The names that are given a sampler, itself or `if` there are several ranks."""
    above = script.parents[sampler]
    choice = isinstance(above, ast.IfExp) and getattr(above.orelse, "value", sampler) is None
    above = script.parents[above] if choice else above
    return [name_of(target) for target in above.targets] if isinstance(above, ast.Assign) else []


def _uses(script: Script, names: list[str]) -> list[ast.expr]:
    """Where a name is read; an attribute (`self.sampler`) is one as a whole."""
    nodes = (node for node in script.parents if isinstance(node, ast.Name | ast.Attribute))
    return [node for node in nodes if isinstance(node.ctx, ast.Load) and name_of(node) in names]


def _is_looked_at(script: Script, use: ast.expr) -> bool:
    """Whether nothing is given a sampler: its epoch is set, it is compared, or returned."""
    above = script.parents[use]
    set_epoch = isinstance(above, ast.Attribute) and above.attr == "set_epoch"
    return set_epoch or isinstance(above, ast.Compare) or _returns(script, use)


def _returns(script: Script, use: ast.expr) -> bool:
    above = script.parents[use]
    return isinstance(script.parents[above] if isinstance(above, ast.Tuple) else above, ast.Return)


def _is_returned(script: Script, names: list[str]) -> bool:
    return any(_returns(script, use) for use in _uses(script, names))


def _received(script: Script, names: list[str]) -> list[str] | None:
    """The names that callers give to a sampler which a function returns; None where one of them may give it to a
    loader."""
    received: list[str] = []
    for use in (one for one in _uses(script, names) if _returns(script, one)):
        values = script.parents[use]
        function = next((above for above in script.above(use) if isinstance(above, ast.FunctionDef)), None)
        calls = script.calls(function.name) if function is not None else []
        for call in calls:
            above = script.parents[call]
            targets = above.targets[0] if isinstance(above, ast.Assign) else None
            if not isinstance(values, ast.Tuple) or not isinstance(targets, ast.Tuple):
                return None
            if len(values.elts) != len(targets.elts):
                return None
            received.append(name_of(targets.elts[values.elts.index(use)]))
        if not calls:
            return None
    others = _uses(script, received)
    return received if all(received) and all(_is_looked_at(script, use) for use in others) else None


def _is_of_validation(script: Script, sampler: ast.expr) -> bool:
    """Whether a sampler is given to a loader that is one for validation by its data or its name."""
    word = script.parents[sampler]
    loader = script.parents.get(word) if isinstance(word, ast.keyword) and word.arg == "sampler" else None
    if not isinstance(loader, ast.Call) or not f".{name_of(loader.func)}".endswith(".DataLoader"):
        return False
    above = script.parents[loader]
    named = [ast.unparse(target) for target in above.targets] if isinstance(above, ast.Assign) else []
    data = [ast.unparse(one) for one in loader.args[:1]] or [
        ast.unparse(one.value) for one in loader.keywords if one.arg == "dataset"
    ]
    return any(_OF_VALIDATION.search(one) for one in (*named, *data))


def _without_a_value(script: Script) -> set[str]:
    """The names of samplers that are given None only, or what a function of the script returns, which is read there."""
    names = {node.id for node in script.parents if isinstance(node, ast.Name) and _SAMPLER.search(node.id)}
    stores = [node for node in script.parents if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    given = {name: [node for node in stores if node.id == name] for name in names}
    parameters = {node.arg for node in script.parents if isinstance(node, ast.arg)}
    told = {name: nodes for name, nodes in given.items() if nodes and name not in parameters}
    return {name for name, nodes in told.items() if all(_is_none(script, one) for one in nodes)}


def _is_none(script: Script, target: ast.Name) -> bool:
    above = script.parents[target]
    if isinstance(above, ast.Assign) and isinstance(above.value, ast.Constant):
        return above.value.value is None
    statement = script.parents[above] if isinstance(above, ast.Tuple) else None
    made = statement.value if isinstance(statement, ast.Assign) else None
    functions = (node.name for node in script.parents if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return isinstance(made, ast.Call) and name_of(made.func).removeprefix("self.") in set(functions)
