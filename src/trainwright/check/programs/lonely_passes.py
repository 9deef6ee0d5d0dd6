"""Functions of a script that run a model in shards and that rank 0 alone calls: each layer waits for all ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import Lonely, branches_by_rank, last
from trainwright.check.programs.first_rank import leaves_early, of_the_first_rank
from trainwright.check.programs.python_names import Parents, bindings, scope_of

_WHOLE = ("summon_full_params", "unshard")  # with which one rank may run the model by itself
_CHOICES = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.Match, ast.Lambda, ast.FunctionDef)


def lonely_passes(models: set[str], wrapping: set[ast.AST], parents: Parents) -> Iterator[Lonely]:
    """Calls of such functions; `wrapping` are the scopes in which the script itself divides a model."""
    attributes = {node.attr for node in parents if isinstance(node, ast.Attribute)}
    if not models or attributes & set(_WHOLE):
        return
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in parents:
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    for call in [node for node in parents if isinstance(node, ast.Call)]:
        named = functions.get(last(call), [])
        own = isinstance(call.func, ast.Name) or ast.unparse(call.func) == f"self.{last(call)}"
        branch = of_the_first_rank(call, parents) if own and len(named) == 1 else None
        if branch is None or leaves_early(branch) or any(branches_by_rank(one, branch, parents) for one in parents):
            continue
        inner = _pass(named[0], _given(call, named[0], models, parents), parents)
        if inner is not None:
            certain = scope_of(parents, call) in wrapping and _is_always_run(inner, named[0], parents)
            what = f"rank 0 alone calls {named[0].name}, which runs a model in FSDP in line {inner.lineno}: it waits"
            fix = f"call {named[0].name} on every rank, and print or write the result on rank 0"
            yield Lonely(call, what, fix, reasons.LONELY_PASS, "warning" if certain else "info")


def _given(call: ast.Call, function: ast.FunctionDef, models: set[str], parents: Parents) -> set[str]:
    """What a function calls the models that it is given, and those that it reads by their own name."""
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(parents[function], ast.ClassDef):
        parameters = parameters[1:]
    if any(isinstance(one, ast.Starred) for one in call.args):
        return set()
    given = [*zip(parameters, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
    names = {name for name, value in given if name and ast.unparse(value) in models}
    local = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return names | (models - local)


def _pass(function: ast.FunctionDef, names: set[str], parents: Parents) -> ast.Call | None:
    """The first call of one of the models in a function, which gives the name no other value."""
    parameters = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names and scope_of(parents, node) is function:
            name = node.func
            if isinstance(name, ast.Attribute):
                if _classes(name, parents) == {parents[function]}:
                    return node
            elif len(bindings(parents, name)) == (getattr(name, "id", "") in parameters):
                return node
    return None


def _classes(attribute: ast.Attribute, parents: Parents) -> set[ast.AST]:
    """The classes whose methods give the attribute a value."""
    text = ast.unparse(attribute)
    stores = (node for node in parents if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {parents.get(scope_of(parents, node), node) for node in stores if ast.unparse(node) == text}


def _is_always_run(inner: ast.Call, function: ast.FunctionDef, parents: Parents) -> bool:
    ends = (one for one in ast.walk(function) if isinstance(one, ast.Return | ast.Raise))
    if any(one.lineno < inner.lineno for one in ends):
        return False
    node: ast.AST = inner
    while (node := parents[node]) is not function:
        if isinstance(node, _CHOICES):
            return False
    return True
