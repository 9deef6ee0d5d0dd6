"""CloudFormation's own language: parameters, resources and intrinsic functions, in YAML's short form and in JSON's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainwright.check.model import File, Value
from trainwright.check.readers.values import as_bool, as_int, value_of
from trainwright.spec.source import Node, Span


def intrinsic(node: Node) -> tuple[str, Any] | None:
    """The function a node calls and its argument: text for a short scalar form, else a node or a list of nodes."""
    if node.tag:
        return node.tag, node.value
    if node.is_map and len(node.value) == 1:
        key, argument = next(iter(node.value.items()))
        if key in ("Ref", "Condition") or key.startswith("Fn::"):
            return key.removeprefix("Fn::"), argument.value
    return None


def target(node: Node | None) -> str | None:
    """The logical id that `Ref` or `GetAtt` points at."""
    call = intrinsic(node) if node is not None else None
    if call is None or call[0] not in ("Ref", "GetAtt"):
        return None
    argument = call[1]
    if isinstance(argument, list):
        argument = argument[0].text if argument and argument[0].is_scalar else None
    return argument.split(".")[0] if isinstance(argument, str) else None


def targets(node: Node | None) -> set[str]:
    """Every logical id that a node, or a choice inside it (`If`), may point at."""
    names = {target(one) for one in node.walk()} if node is not None else set()
    return {name for name in names if name is not None}


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: its logical id, its type and its properties."""

    id: str
    type: str
    node: Node
    span: Span  # of the logical id

    @property
    def properties(self) -> Node | None:
        return self.node.get("Properties")

    def get(self, *path: str | int) -> Node | None:
        return self.node.get("Properties", *path)


class Template:
    """A template's resources by type, and its values with references to parameters looked up."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.parameters = {key: node for key, node in _children(root, "Parameters") if node.is_map}
        self.resources = {
            key: Resource(key, kind.text, node, (root.get("Resources") or root).key_span(key))
            for key, node in _children(root, "Resources")
            if (kind := node.get("Type")) is not None and kind.is_scalar
        }

    def of(self, *types: str) -> Iterator[Resource]:
        """The resources of these types (without `AWS::`)."""
        wanted = {f"AWS::{kind}" for kind in types}
        return (resource for resource in self.resources.values() if resource.type in wanted)

    def resolve(self, node: Node | None) -> Node | None:
        """The node itself, or the default of the parameter it refers to."""
        name = target(node)
        parameter = self.parameters.get(name) if name is not None else None
        if parameter is None:
            return node
        kind, default = parameter.get("Type"), parameter.get("Default")
        # An SSM parameter's default is the path of a value, not the value.
        if default is None or default.text == "" or (kind is not None and kind.text.startswith("AWS::SSM")):
            return node
        return default

    def value(self, node: Node | None) -> Value[Any] | None:
        resolved = self.resolve(node)
        return value_of(resolved) if resolved is not None else None

    def text(self, node: Node | None) -> Value[str] | None:
        """A text; a reference that cannot be looked up is stated but not known, and reads as its target."""
        resolved = self.resolve(node)
        if resolved is None or (resolved.is_scalar and resolved.value is None):
            return None
        shown = target(resolved) or resolved.text
        return Value(shown, resolved.span, resolved.text, None, resolved.is_scalar and value_of(resolved).known)

    def number(self, node: Node | None) -> Value[int] | None:
        return as_int(self.value(node))

    def truth(self, node: Node | None) -> Value[bool] | None:
        return as_bool(self.value(node))

    def texts(self, node: Node | None) -> list[Value[str]]:
        """The texts of a list; a whole list given by reference is one value that is not known."""
        resolved = self.resolve(node)
        if resolved is None:
            return []
        if resolved is not node and self._is_list(target(node)):
            parts = [part.strip() for part in resolved.text.split(",")]
            return [Value(part, resolved.span, part, None, value_of(resolved).known) for part in parts]
        elements = list(resolved.elements()) if resolved.is_list and not resolved.tag else [resolved]
        return [value for value in map(self.text, elements) if value is not None]

    def _is_list(self, name: str | None) -> bool:
        """Whether the default of a parameter is a list with commas (CommaDelimitedList, List<Number> …)."""
        kind = self.parameters[name].get("Type") if name in self.parameters else None
        return kind is not None and (kind.text == "CommaDelimitedList" or kind.text.startswith("List<"))


def template_of(file: File) -> Template | None:
    """The template a file holds."""
    return Template(file.nodes[0]) if file.format == "cloudformation" and file.nodes else None


def maps(node: Node | None) -> list[Node]:
    """The maps of a list of maps."""
    return [element for element in node.elements() if element.is_map] if node is not None else []


def _children(root: Node, key: str) -> list[tuple[str, Node]]:
    section = root.get(key)
    return [(name, node) for name, node in section.items()] if section is not None else []
