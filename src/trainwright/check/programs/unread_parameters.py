"""Parameters of a class that nothing of it reads: a dataset that is given a rank, keeps it and reads every file."""

from __future__ import annotations

import ast

from trainwright.check.programs.python_names import Parents, scope_of

_BY_NAME = ("getattr", "vars", "__dict__", "locals")  # with which a class may read any of its parts


def unread_words(parents: Parents, node: ast.ClassDef) -> set[str]:
    """The parameters of a class's __init__ that it never reads, and the attributes in which it keeps them."""
    init, words = _init(node), {name for name in _BY_NAME if name in ast.unparse(node)}
    if init is None or words or _is_inherited(parents, node) or _gives_itself(parents, node):
        return set()
    read = {one.attr for one in parents if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)}
    uses: dict[str, list[ast.Name]] = {name: [] for name in _names(init)}
    for one in ast.walk(init):
        if isinstance(one, ast.Name) and one.id in uses:
            uses[one.id].append(one)
    kept = {name: _kept_in(parents, init, uses[name]) for name in uses}
    unread = {name: attributes for name, attributes in kept.items() if attributes is not None and not attributes & read}
    others = {attribute for name, attributes in kept.items() if name not in unread for attribute in attributes or ()}
    # A word that another function of the class has too is one of that function.
    other = {word for one in node.body if one is not init for word in _words(one)}
    return (set(unread) | {one for attributes in unread.values() for one in attributes or ()}) - others - other


def used_arguments(parents: Parents, node: ast.ClassDef, maker: ast.Call) -> list[ast.expr]:
    """What a call gives to the parameters of a class that the class reads."""
    init, unread = _init(node), unread_words(parents, node)
    plain = not any(isinstance(one, ast.Starred) for one in maker.args)
    positional = _names(init)[: len(maker.args)] if init is not None and plain else []
    names = positional + [""] * (len(maker.args) - len(positional))
    given = [*zip(names, maker.args, strict=True), *((word.arg or "", word.value) for word in maker.keywords)]
    return [value for name, value in given if name not in unread]


def _init(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _names(init: ast.FunctionDef) -> list[str]:
    """The parameters behind `self`, in the order of positional arguments."""
    named = [*init.args.posonlyargs, *init.args.args][1:] + init.args.kwonlyargs
    return [one.arg for one in named]


def _is_inherited(parents: Parents, node: ast.ClassDef) -> bool:
    """Whether another class of the script may read what this one keeps."""
    bases = (base for one in parents if isinstance(one, ast.ClassDef) for base in one.bases)
    return any(ast.unparse(base) == node.name for base in bases)


def _gives_itself(parents: Parents, node: ast.ClassDef) -> bool:
    """Whether a method gives `self` to a function, which may read what it keeps."""
    named = (one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id == "self")
    return any(not isinstance(parents[one], ast.Attribute) for one in named)


def _kept_in(parents: Parents, init: ast.FunctionDef, uses: list[ast.Name]) -> set[str] | None:
    """The attributes in which __init__ keeps a parameter; None where it does something else with it."""
    attributes = set()
    for use in uses:
        attribute = _attribute_of(parents, use)
        if not attribute or scope_of(parents, use) is not init:
            return None
        attributes.add(attribute)
    return attributes


def _attribute_of(parents: Parents, use: ast.Name) -> str:
    """`self.x = name`, or the same place of `self.x, self.y = name, other`."""
    above = parents[use]
    places: list[ast.expr] = [use]
    if isinstance(above, ast.Tuple):
        places, above = above.elts, parents[above]
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    if target is None or not isinstance(above, ast.Assign) or use is target:
        return ""
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    whole = above.value is use or above.value is parents[use]
    one = targets[places.index(use)] if whole and len(targets) == len(places) else None
    own = isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    return one.attr if own and isinstance(one, ast.Attribute) else ""


def _words(node: ast.stmt) -> set[str]:
    words = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return words | {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
