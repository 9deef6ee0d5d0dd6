"""What the roles of a plan's stacks allow, with the plan's parameters put in: just the functions and conditions of
CloudFormation that our templates use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from trainwright.platforms.parallelcluster.access import partition_of
from trainwright.platforms.wiring import StackPlan
from trainwright.stacks.library import template

ROLE, POLICY = "AWS::IAM::Role", "AWS::IAM::Policy"
_NOTHING = "AWS::NoValue"


class _Loader(yaml.SafeLoader):
    """Reads a template with its functions as one-key mappings: `!Ref Objects` is {"Ref": "Objects"}."""


def _function(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return {tag: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {tag: loader.construct_sequence(node, deep=True)}
    assert isinstance(node, yaml.MappingNode)
    return {tag: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _function)


class StackRoles:
    """The roles of one stack."""

    def __init__(self, stack: StackPlan, region: str) -> None:
        body = yaml.load(template(stack.template).text, _Loader)
        self.resources: dict[str, Any] = body["Resources"]
        self.conditions: dict[str, Any] = body.get("Conditions", {})
        declared: Mapping[str, Mapping[str, Any]] = body.get("Parameters", {})
        given = {name: stack.parameters.get(name, str(row.get("Default", ""))) for name, row in declared.items()}
        lists = [name for name, row in declared.items() if row["Type"] == "CommaDelimitedList"]
        self.values: dict[str, Any] = {**given, **{name: given[name].split(",") for name in lists}}
        self.values |= {"AWS::Partition": partition_of(region), "AWS::Region": region, "AWS::AccountId": "*"}

    def role(self, name: str) -> dict[str, Any] | None:
        """Managed policies, and the policies that the stack writes, of one role; None where the stack makes none."""
        resource = self.resources[name]
        if "Condition" in resource and not self._holds(resource["Condition"]):
            return None
        properties = self.value(resource["Properties"])
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
        for other in self.resources.values():
            if other["Type"] == POLICY and name in self.value(other["Properties"]["Roles"]):
                documents.append(self.value(other["Properties"]["PolicyDocument"]))
        statements = [statement for document in documents for statement in document["Statement"]]
        policy = {"Version": "2012-10-17", "Statement": statements}
        return {"managed": properties.get("ManagedPolicyArns", []), "policy": policy}

    def value(self, data: Any) -> Any:
        """A part of the template as CloudFormation would read it; a resource goes by its name in the template."""
        if isinstance(data, list):
            return [self.value(each) for each in data if self._chosen(each) != {"Ref": _NOTHING}]
        if not isinstance(data, dict):
            return data
        data = self._chosen(data)
        if isinstance(data, dict) and "Ref" in data:
            return self.values.get(data["Ref"], data["Ref"])
        if isinstance(data, dict) and "Sub" in data:
            return re.sub(r"\$\{([A-Za-z:.]+)\}", lambda m: str(self.values.get(m[1], m[1])), data["Sub"])
        if isinstance(data, dict) and "GetAtt" in data:
            return data["GetAtt"]
        return {key: self.value(each) for key, each in data.items()} if isinstance(data, dict) else self.value(data)

    def _chosen(self, data: Any) -> Any:
        while isinstance(data, dict) and "If" in data:
            condition, yes, no = data["If"]
            data = yes if self._holds(condition) else no
        return data

    def _holds(self, name: str) -> bool:
        return self._true(self.conditions[name])

    def _true(self, test: dict[str, Any]) -> bool:
        ((function, words),) = test.items()
        if function == "Condition":
            return self._holds(words)
        if function == "Not":
            return not self._true(words[0])
        if function in ("And", "Or"):
            return (all if function == "And" else any)(self._true(each) for each in words)
        left, right = (self._text(word) for word in words)  # Equals
        return left == right

    def _text(self, word: Any) -> str:
        if isinstance(word, dict) and "Join" in word:
            separator, parts = word["Join"]
            return str(separator.join(self.value(parts)))
        return str(self.value(word))
