"""K8S: what Kubernetes' own workloads and Services must have, which the API server says after the types are right."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.kubernetes_schema import OBJECTS
from trainwright.check.readers.values import int_at, map_values, text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

SELECTING = ("Deployment", "StatefulSet", "DaemonSet")  # by labels that they state; their pods always restart
_WHY = "the API server refuses the whole object."


def incomplete_workload(root: Node, kind: tuple[str, str], labelled: bool) -> Iterator[Problem]:
    """What is missing; `labelled`: no tool adds labels to the objects of this directory."""
    if kind not in OBJECTS:
        return
    if kind[1] in SELECTING:
        yield from _restarts(root, kind[1])
        if labelled:
            yield from _selects(root, kind[1])
    elif kind[1] == "Service":
        yield from _ports(root)
    elif kind[1] == "Job":
        yield from _indexed(root)


def _restarts(root: Node, kind: str) -> Iterator[Problem]:
    policy = text_at(root, "spec", "template", "spec", "restartPolicy")
    if policy is not None and policy.value in ("Never", "OnFailure"):
        said = f"a {kind} restarts its pods always: Kubernetes refuses restartPolicy {policy.value}"
        yield problem(policy, said, "remove it, or use a Job", why=_WHY)


def _selects(root: Node, kind: str) -> Iterator[Problem]:
    spec, template = root.get("spec"), root.get("spec", "template")
    if spec is None or template is None or template.get("spec", "containers") is None:
        return
    selector, labels = spec.get("selector"), map_values(template.get("metadata", "labels"))
    if selector is None and labels:  # without labels too, parts of the object are elsewhere
        yield problem(
            root.key_span("spec"), f"a {kind} without spec.selector: Kubernetes refuses it",
            "add spec.selector.matchLabels with the labels of the pod template", why=_WHY,
        )  # fmt: skip
    wanted = map_values(selector.get("matchLabels")) if selector is not None else {}
    if not all(value.known for value in (*wanted.values(), *labels.values())):
        return
    for key, value in wanted.items():
        if key not in labels or labels[key].text != value.text:
            has = f"has {labels[key].text}" if key in labels else "does not have it"
            said = f"the selector asks for {key}: {value.text}, and the pod template {has}: Kubernetes refuses it"
            yield problem(value, said, "write the same labels in both", why=_WHY)
            return


def _ports(root: Node) -> Iterator[Problem]:
    spec = root.get("spec")
    listed = spec.get("ports") if spec is not None else None
    ports = [port for port in listed.elements() if port.is_map] if listed is not None else []
    nameless = [port for port in ports if port.get("name") is None]
    if len(ports) > 1 and nameless:
        yield problem(nameless[0], f"{len(ports)} ports, of which {len(nameless)} have no name: Kubernetes refuses it",
                      "name every port", why=_WHY)  # fmt: skip
    address, type_ = text_at(spec, "clusterIP"), text_at(spec, "type")
    headless = (address is not None and (address.value == "None" or not address.known)) or (
        type_ is not None and (type_.value == "ExternalName" or not type_.known)
    )
    # A patch changes the type alone.
    if spec is not None and spec.get("selector") is not None and not headless and listed is None:
        said = "a Service without ports that is not headless: Kubernetes refuses it"
        outside = type_ is not None and type_.value != "ClusterIP"
        yield problem(root.key_span("spec"), said, "add ports" + ("" if outside else ", or clusterIP: None"), why=_WHY)


def _indexed(root: Node) -> Iterator[Problem]:
    mode, pods = text_at(root, "spec", "completionMode"), root.get("spec", "template", "spec", "containers")
    missing = pods is not None and root.get("spec", "completions") is None
    if missing and mode is not None and mode.value == "Indexed":
        count = int_at(root, "spec", "parallelism")
        number = count.value if count is not None and count.known else 1
        said = "an indexed job without completions: Kubernetes refuses it"
        yield problem(mode, said, f"add completions: {number}", why=_WHY)
