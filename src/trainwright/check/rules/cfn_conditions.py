"""CFN: conditions on a `Create…` parameter that omit a resource exactly when it is requested."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.readers.cfn_template import Resource, Template, intrinsic, target, targets
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_DEPTH = 5  # of conditions inside conditions
_OF_PARAMETER = re.compile(r"^Create(New|An?(?=[A-Z])|The)?")
_INSTEAD = re.compile(
    r"(?i:exist|import|external|provided|given|lookup|shared|default|fallback|dummy|instead|placeholder|public|missing)"
    r"|(^|[a-z0-9_])(No|Not|Dont|Without|Skip|Disable|Use|Own|Byo|BYO|Other|Old)(?=[A-Z_]|$)"
    r"|^(no|not|without|skip|use)(?=[A-Z_])"
)


def inverted(template: Template) -> Iterator[Problem]:
    """What a condition on a Create… parameter leaves out, and whether the condition itself is the wrong way round."""
    asked = {name: side for name, node in _conditions(template) if (side := _asked(template, node)) is not None}
    yield from _swapped_branches(template, {name for name, (_, wanted) in asked.items() if wanted})
    for name, (parameter, wanted) in asked.items():
        if not wanted and not _INSTEAD.search(name) and (parameter, True) not in asked.values():
            yield from _negated(template, name, parameter)


def _swapped_branches(template: Template, wanted: set[str]) -> Iterator[Problem]:
    """`!If [CreateIt, !Ref AWS::NoValue, It]`, where the condition is that a Create… parameter is true."""
    for resource in template.resources.values():
        for condition, yes, no in _choices(resource):
            made = bool(targets(no) & set(template.resources))  # a parameter names what exists already
            if condition in wanted and target(yes) == "AWS::NoValue" and made:
                yield problem(
                    yes,
                    f"{resource.id}: omitted exactly when {condition} requests it",
                    "swap the two branches",
                    why=reasons.OMITTED_WHEN_ASKED,
                )


def _negated(template: Template, name: str, parameter: str) -> Iterator[Problem]:
    """A resource that is named like the parameter and is there where the parameter is false. What stands in for it has
    another name, or one that says so."""
    users = [one for one in template.resources.values() if _condition_of(one) == name]
    for resource in template.resources.values():
        for condition, yes, no in _choices(resource):
            if condition == name and target(no) == "AWS::NoValue":
                users += [template.resources[one] for one in sorted(targets(yes) & set(template.resources))]
    named = [one for one in users if _is_named_like(one, parameter)]
    if not named or any(_INSTEAD.search(one.id) for one in users):
        return
    conditions = template.root.get("Conditions")
    node = conditions.get(name) if conditions is not None else None
    if node is not None:
        yield problem(
            node,
            f"{name} holds where {parameter} is not true: {named[0].id} is omitted exactly when it is requested",
            f"let {name} hold where {parameter} is true",
            level="info",  # a template may create something else in its place
            why=reasons.OMITTED_WHEN_ASKED,
        )


def _is_named_like(resource: Resource, parameter: str) -> bool:
    stem, name = (text.lower().removesuffix("s") for text in (_OF_PARAMETER.sub("", parameter), resource.id))
    return min(len(stem), len(name)) > 2 and (stem.endswith(name) or name.endswith(stem))


def _condition_of(resource: Resource) -> str | None:
    condition = resource.node.get("Condition")
    return condition.text if condition is not None and condition.is_scalar else None


def _choices(resource: Resource) -> Iterator[tuple[str, Node, Node]]:
    """Every `!If` of a resource: the condition and the two branches."""
    for node in resource.node.walk():
        call = intrinsic(node)
        if call is not None and call[0] == "If" and isinstance(call[1], list) and len(call[1]) == 3:
            condition, yes, no = call[1]
            if condition.is_scalar:
                yield condition.text, yes, no


def _conditions(template: Template) -> Iterator[tuple[str, Node]]:
    conditions = template.root.get("Conditions")
    return conditions.items() if conditions is not None else iter(())


def _asked(template: Template, node: Node, depth: int = _DEPTH) -> tuple[str, bool] | None:
    """The Create… parameter that a condition is about, and whether the condition holds where it is true."""
    call = intrinsic(node)
    if call is None or depth == 0:
        return None
    name, arguments = call
    if name == "Condition" and isinstance(arguments, str):
        inner = next((one for key, one in _conditions(template) if key == arguments), None)
        return _asked(template, inner, depth - 1) if inner is not None else None
    if not isinstance(arguments, list):
        return None
    if name == "Not" and len(arguments) == 1:
        side = _asked(template, arguments[0], depth - 1)
        return (side[0], not side[1]) if side is not None else None
    return _compared(arguments) if name == "Equals" and len(arguments) == 2 else None


def _compared(sides: list[Node]) -> tuple[str, bool] | None:
    names = [name for side in sides if (name := target(side)) is not None and name.startswith("Create")]
    values = [side.text.lower() for side in sides if side.is_scalar and not side.tag]
    if len(names) != 1 or values not in (["true"], ["yes"], ["false"], ["no"]):
        return None
    return names[0], values[0] in ("true", "yes")
