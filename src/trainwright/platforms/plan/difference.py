"""What would change against an earlier plan: the lines, and for each changed field whether a running cluster takes it,
drains for it, must be stopped for it, or must be made anew."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from trainwright.errors import UserError
from trainwright.platforms.hyperpod.updates import effect_of as hyperpod_effect
from trainwright.platforms.parallelcluster.updates import Effect, effect_of
from trainwright.stacks.updates import parameter_effect

_NAMES = ("Name", "Key", "BucketName", "Policy", "Script", "InstanceGroupName")
_CLUSTERS = ("cluster.yaml", "hyperpod.yaml")
_STACKS = ("stacks/", "without-eksctl/")
_TEMPLATES = {"control": "eks-cluster", "nodes": "eks-nodes", "addons": "eks-addons"}  # of stacks with another name
HARD = {"live": 0, "drain": 1, "stop": 2, "replace": 3}


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs. `old` or `new` is None where it is not there."""

    file: str
    path: str
    old: Any
    new: Any
    effect: str
    say: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs between two plans of one cluster."""

    changes: tuple[Change, ...]
    lines: str  # a unified diff of all files

    def records(self) -> list[dict[str, Any]]:
        """The changes as JSON knows them."""
        return [asdict(change) for change in self.changes]

    @property
    def hardest(self) -> str:
        """The effect that decides how the change must be made."""
        return max((c.effect for c in self.changes), key=HARD.__getitem__, default="live")


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> Difference:
    """From the files of an earlier plan to those of this one. Pictures are drawn from the rest and left out."""
    names = [name for name in sorted({*old, *new}) if not name.endswith(".svg")]
    changes: list[Change] = []
    for name in names:
        before, after = old.get(name), new.get(name)
        if before != after:
            changes += _changes(name, before, after)
    return Difference(tuple(changes), "".join(_unified(old.get(n, ""), new.get(n, ""), n) for n in names))


def _unified(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{name}", f"b/{name}", n=2)
    return "".join(lines)


def _changes(name: str, old: str | None, new: str | None) -> Iterator[Change]:
    if name in _CLUSTERS and old is not None and new is not None:
        yield from _cluster(name, old, new)
    elif name.endswith(".parameters.json") and old is not None and new is not None:
        yield from _parameters(name, old, new)
    elif name.startswith(_STACKS) and name.endswith(".yaml"):
        yield _stack(name, old, new)
    elif name.startswith("jobs/"):
        yield Change(name, "", None, None, "live", "the next submission of the job")
    elif name.startswith("lifecycle/"):
        yield Change(
            name, "", None, None, "live", "another script, in another folder: see hyperpod.yaml for its effect"
        )
    elif name.startswith("scripts/"):
        yield Change(
            name, "", None, None, "live", "another script, under another name: see cluster.yaml for its effect"
        )


def _stack(name: str, old: str | None, new: str | None) -> Change:
    if old is None:
        return Change(name, "", None, "new", "live", "a new stack is deployed")
    if new is None:
        return Change(name, "", "stack", None, "live", "no longer part of the plan; `down` removes it, data is kept")
    return Change(name, "", "template", "template", "live", "a newer template: look at its change set before it runs")


def _cluster(name: str, old: str, new: str) -> Iterator[Change]:
    before, after = flatten(_data(old, name)), flatten(_data(new, name))
    for path in dict.fromkeys([*before, *after]):
        if before.get(path) == after.get(path) or _inside_new_or_gone(path, before, after):
            continue
        effect = _effect(name, path, before, after)
        yield Change(name, path, before.get(path), after.get(path), effect.kind, effect.say)


def _effect(name: str, path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Effect:
    if name == "hyperpod.yaml":
        return hyperpod_effect(path, before.get(path), after.get(path))
    top = path.removesuffix("MinCount") + "MaxCount"
    grown = _number(after.get(top)) - _number(before.get(top)) if path.endswith("MinCount") else 0
    return effect_of(path, before.get(path), after.get(path), grown)


def _inside_new_or_gone(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a list element above the path is itself new or gone: that is told once, by the element."""
    parents = [path[: i + 1] for i, letter in enumerate(path) if letter == "]" and i + 1 < len(path)]
    return any((parent in before) != (parent in after) for parent in parents)


def _data(text: str, name: str) -> Any:
    """A file of a plan as data; JSON is YAML too. One that somebody edited may be neither."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _spoiled(name) from error


def _pairs(data: Any, name: str) -> dict[str, str]:
    try:
        return {row["ParameterKey"]: row["ParameterValue"] for row in data}
    except (TypeError, KeyError) as error:
        raise _spoiled(name) from error


def _spoiled(name: str) -> UserError:
    return UserError(
        f"{name} of the earlier plan was edited and cannot be read", fix="plan into another folder with -o"
    )


def flatten(data: Any, path: str = "") -> dict[str, Any]:
    """Every value by its path; elements of a list go by their name where they have one: `SlurmQueues[train].Name`."""
    leaves: dict[str, Any] = {}
    if isinstance(data, dict) and data:
        for key, value in data.items():
            leaves |= flatten(value, f"{path}.{key}" if path else str(key))
        return leaves
    names = _names(data) if isinstance(data, list) else None
    if names is None:
        return {path: data}
    for name, element in zip(names, data, strict=True):
        leaves[f"{path}[{name}]"] = name
        leaves |= flatten(element, f"{path}[{name}]")
    return leaves


def _names(elements: list[Any]) -> list[str] | None:
    if not elements or not all(isinstance(e, dict) for e in elements):
        return None
    key = next((k for k in _NAMES if all(k in e for e in elements)), None)
    names = [str(e[key]) for e in elements] if key is not None else []
    return names if names and len(set(names)) == len(names) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _parameters(name: str, old: str, new: str) -> Iterator[Change]:
    before, after = (_pairs(_data(text, name), name) for text in (old, new))
    kind = name.rpartition("/")[2].removesuffix(".parameters.json").split("-")[0]
    template = _TEMPLATES.get(kind, kind)
    for parameter in dict.fromkeys([*before, *after]):
        if before.get(parameter) != after.get(parameter):
            effect, say = parameter_effect(template, parameter, before, after)
            yield Change(name, parameter, before.get(parameter), after.get(parameter), effect, say)
