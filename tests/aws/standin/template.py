"""A CloudFormation template as data, and the evaluation of its functions, conditions, rules and parameters."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml


class TemplateError(Exception):
    """What CloudFormation answers with a ValidationError."""


class _Loader(yaml.SafeLoader):
    pass


def _tag(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    key = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {key: value}


_Loader.add_multi_constructor("!", _tag)
# Dates stay text: policy versions look like dates.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

NO_VALUE = object()


@functools.cache
def parse(body: str) -> dict[str, Any]:
    """The template, which nobody changes; JSON is YAML too, only slower."""
    try:
        template = json.loads(body) if body.lstrip().startswith("{") else yaml.load(body, _Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise TemplateError(f"Template format error: {error}") from error
    if not isinstance(template, dict) or not template.get("Resources"):
        raise TemplateError("Template format error: At least one Resources member must be defined.")
    return template


def parameters(template: dict[str, Any], given: dict[str, str], exists: Callable[[str, str], bool]) -> dict[str, str]:
    """Every parameter with its value, held to the template's constraints. `exists` looks an id of a type up."""
    declared = template.get("Parameters", {})
    unknown = set(given) - set(declared)
    if unknown:
        raise TemplateError(f"Parameters: [{', '.join(sorted(unknown))}] do not exist in the template")
    values: dict[str, str] = {}
    for name, rules in declared.items():
        if name not in given and "Default" not in rules:
            raise TemplateError(f"Parameters: [{name}] must have values")
        value = str(given.get(name, rules.get("Default")))
        _hold(name, value, rules, exists)
        values[name] = value
    return values


def _hold(name: str, value: str, rules: dict[str, Any], exists: Callable[[str, str], bool]) -> None:
    if "AllowedValues" in rules and value not in [str(one) for one in rules["AllowedValues"]]:
        raise TemplateError(f"Parameter '{name}' must be one of AllowedValues")
    if "AllowedPattern" in rules and not re.fullmatch(rules["AllowedPattern"], value):
        raise TemplateError(f"Parameter '{name}' must match pattern {rules['AllowedPattern']}")
    if rules.get("Type") == "Number":
        try:
            number = float(value)
        except ValueError:
            raise TemplateError(f"Parameter '{name}' must be a number") from None
        if number < float(rules.get("MinValue", number)) or number > float(rules.get("MaxValue", number)):
            raise TemplateError(f"Parameter '{name}' must be a number not less than {rules.get('MinValue')}")
    kind = re.fullmatch(r"(?:List<)?(AWS::EC2::[A-Za-z:]+::Id)>?", rules.get("Type", ""))
    for one in value.split(",") if kind else []:
        if kind and not exists(kind[1], one):
            raise TemplateError(
                f"Template validation error: Parameter value {one} for parameter name {name} does not exist"
            )


class Scope:
    """What the functions of one stack can see. `resource(logical, attribute or None)` gives a Ref or an attribute."""

    def __init__(
        self,
        template: dict[str, Any],
        values: dict[str, str],
        pseudo: dict[str, Any],
        zones: list[str],
        resource: Callable[[str, str | None], Any],
    ) -> None:
        self.template, self.values, self.pseudo, self.zones, self.resource = template, values, pseudo, zones, resource

    def condition(self, name: str) -> bool:
        return bool(self.value(self.template["Conditions"][name]))

    def wanted(self) -> dict[str, dict[str, Any]]:
        """The resources whose condition holds."""
        declared = self.template["Resources"]
        return {name: body for name, body in declared.items() if self._holds(body)}

    def _holds(self, body: dict[str, Any]) -> bool:
        return "Condition" not in body or self.condition(body["Condition"])

    def outputs(self) -> list[dict[str, str]]:
        declared = self.template.get("Outputs", {})
        return [
            {
                "OutputKey": key,
                "OutputValue": str(self.value(body["Value"])),
                "Description": body.get("Description", ""),
            }
            for key, body in declared.items()
            if self._holds(body)
        ]

    def check_rules(self) -> None:
        for rule in self.template.get("Rules", {}).values():
            if "RuleCondition" not in rule or self.value(rule["RuleCondition"]):
                for item in rule["Assertions"]:
                    if not self.value(item["Assert"]):
                        raise TemplateError(f"Template error: {item.get('AssertDescription', 'an assertion failed')}")

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [one for one in (self.value(item) for item in node) if one is not NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((key, inner),) = node.items()
            if key == "Ref":
                return self._ref(inner)
            if key == "Condition" and isinstance(inner, str):
                return self.condition(inner)
            if key.startswith("Fn::"):
                return self._function(key[4:], inner)
        pairs = ((key, self.value(inner)) for key, inner in node.items())
        return {key: inner for key, inner in pairs if inner is not NO_VALUE}

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self.pseudo:
            return self.pseudo[name]
        if name in self.values:
            kind = self.template["Parameters"][name].get("Type", "")
            is_list = kind.startswith("List<") or kind == "CommaDelimitedList"
            return self.values[name].split(",") if is_list else self.values[name]
        return self.resource(name, None)

    def _function(self, name: str, inner: Any) -> Any:
        function = getattr(self, f"_fn_{name.lower()}", None)
        if function is None:
            raise TemplateError(f"Template error: unknown function Fn::{name}")
        return function(inner)

    def _fn_getatt(self, inner: Any) -> Any:
        logical, attribute = inner.split(".", 1) if isinstance(inner, str) else (inner[0], self.value(inner[1]))
        return self.resource(logical, attribute)

    def _fn_sub(self, inner: Any) -> str:
        text, extra = (inner, {}) if isinstance(inner, str) else (inner[0], self.value(inner[1]))

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("!"):
                return "${" + name[1:] + "}"
            if name in extra:
                return str(extra[name])
            return str(self._fn_getatt(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", fill, text)

    def _fn_if(self, inner: list[Any]) -> Any:
        return self.value(inner[1] if self.condition(inner[0]) else inner[2])

    def _fn_equals(self, inner: list[Any]) -> bool:
        left, right = self.value(inner)
        return str(left) == str(right)

    def _fn_not(self, inner: list[Any]) -> bool:
        return not self.value(inner[0])

    def _fn_and(self, inner: list[Any]) -> bool:
        return all(self.value(one) for one in inner)

    def _fn_or(self, inner: list[Any]) -> bool:
        return any(self.value(one) for one in inner)

    def _fn_contains(self, inner: list[Any]) -> bool:
        return str(self.value(inner[1])) in [str(one) for one in self.value(inner[0])]

    def _fn_select(self, inner: list[Any]) -> Any:
        return self.value(inner[1])[int(self.value(inner[0]))]

    def _fn_join(self, inner: list[Any]) -> str:
        return str(inner[0]).join(str(one) for one in self.value(inner[1]))

    def _fn_split(self, inner: list[Any]) -> list[str]:
        return str(self.value(inner[1])).split(str(inner[0]))

    def _fn_getazs(self, inner: Any) -> list[str]:
        return self.zones

    def _fn_base64(self, inner: Any) -> str:
        import base64

        return base64.b64encode(str(self.value(inner)).encode()).decode()

    def _fn_findinmap(self, inner: list[Any]) -> Any:
        name, first, second = self.value(inner)
        return self.template["Mappings"][name][first][second]


def waves(wanted: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Resources in the order they can be made: each wave needs only those before it."""
    needs = {name: {n for n in _names(body) if n in wanted and n != name} for name, body in wanted.items()}
    order: list[list[str]] = []
    done: set[str] = set()
    while len(done) < len(wanted):
        ready = [name for name in wanted if name not in done and needs[name] <= done]
        if not ready:
            raise TemplateError("Circular dependency between resources")
        order.append(ready)
        done |= set(ready)
    return order


def _names(node: Any) -> Iterator[str]:
    """Every name a resource's body refers to."""
    if isinstance(node, list):
        for item in node:
            yield from _names(item)
    elif isinstance(node, dict):
        for key, inner in node.items():
            if key == "Ref" and isinstance(inner, str):
                yield inner
            elif key == "Fn::GetAtt":
                yield inner.split(".")[0] if isinstance(inner, str) else inner[0]
            elif key == "Fn::Sub":
                text = inner if isinstance(inner, str) else inner[0]
                yield from (match.split(".")[0] for match in re.findall(r"\$\{([^!}]+)\}", text))
                if not isinstance(inner, str):
                    yield from _names(inner[1])
            elif key == "DependsOn":
                yield from [inner] if isinstance(inner, str) else inner
            else:
                yield from _names(inner)
