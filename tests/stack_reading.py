"""A small reading of CloudFormation's functions: what a template makes for given parameters."""

from __future__ import annotations

from typing import Any

from trainwright.spec.source import Node, parse
from trainwright.stacks.library import template

REGION_ZONES = [f"us-east-2{letter}" for letter in "abc"]
NO_VALUE = object()


class Reading:
    """A template read with parameters: which resources there are, and the values of their properties."""

    def __init__(self, name: str, **parameters: str) -> None:
        (self.root,) = parse(template(name).text, name)
        given = self.root.get("Parameters")
        assert given is not None
        self.parameters = {key: self._default(node) for key, node in given.items()} | parameters

    def _default(self, node: Node) -> str:
        default = node.get("Default")
        return default.text if default is not None else ""

    def condition(self, name: str) -> bool:
        node = self.root.get("Conditions", name)
        assert node is not None, name
        return bool(self.value(node))

    def resources(self) -> dict[str, Node]:
        section = self.root.get("Resources")
        assert section is not None
        kept: dict[str, Node] = {}
        for name, node in section.items():
            wanted = node.get("Condition")
            if wanted is None or self.condition(wanted.text):
                kept[name] = node
        return kept

    def value(self, node: Node) -> Any:
        if node.tag:
            return self._function(node)
        if node.is_map:
            pairs = {key: self.value(child) for key, child in node.items()}
            return {key: value for key, value in pairs.items() if value is not NO_VALUE}
        if node.is_list:
            return [value for child in node.elements() if (value := self.value(child)) is not NO_VALUE]
        return node.text

    def _function(self, node: Node) -> Any:
        if node.tag == "Ref":
            return NO_VALUE if node.text == "AWS::NoValue" else self.parameters.get(node.text, f"<{node.text}>")
        if node.tag == "Condition":
            return self.condition(node.text)
        if node.tag in ("GetAtt", "Sub"):
            return f"<{node.text}>"
        if node.tag == "GetAZs":
            return REGION_ZONES
        parts = list(node.elements())
        if node.tag == "If":
            return self.value(parts[1] if self.condition(parts[0].text) else parts[2])
        values = [self.value(part) for part in parts]
        functions: dict[str, Any] = {
            "Equals": lambda: values[0] == values[1],
            "Not": lambda: not values[0],
            "And": lambda: all(values),
            "Or": lambda: any(values),
            "Select": lambda: values[1][int(values[0])],
            "Join": lambda: values[0].join(values[1]),
        }
        return functions[node.tag]()

    def properties(self, name: str) -> dict[str, Any]:
        node = self.resources()[name].get("Properties")
        assert node is not None
        values: dict[str, Any] = self.value(node)
        return values
