"""K8S: what the API server requires in a pod, a claim's use or a Job, and what it makes itself."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.readers.kubernetes import pod_specs
from trainwright.check.readers.kubernetes_pods import maps_at
from trainwright.check.readers.values import bool_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_refused import why_refused
from trainwright.spec.source import Node

_REFUSED = "Kubernetes refuses it"


def missing_parts(root: Node, kind: str) -> Iterator[Problem]:
    """`root` is one of Kubernetes' own objects, which nothing completes."""
    why = why_refused(kind)
    for spec in pod_specs(root):
        for container in (*maps_at(spec, "containers"), *maps_at(spec, "initContainers")):
            if container.get("name") is None and container.get("image") is not None:
                at = container.key_span("image")
                yield problem(at, f"a container without a name: {_REFUSED}", "add name: beside image", why=why)
            yield from _of_container(container, why)
    if kind == "Job":
        yield from _own_selector(root)


def _of_container(container: Node, why: str) -> Iterator[Problem]:
    for mount in maps_at(container, "volumeMounts"):
        for key in ("name", "mountPath"):
            if mount.get(key) is None:
                yield problem(mount.span, f"a volume mount without {key}: {_REFUSED}", f"add {key}", why=why)
    for variable in maps_at(container, "env"):
        for source in ("secretKeyRef", "configMapKeyRef"):
            reference = variable.get("valueFrom", source)
            if reference is not None and reference.is_map and reference.get("key") is None:
                said = f"{source} without key, the entry that is read: {_REFUSED}"
                yield problem(reference.span, said, "add key", why=why)


def _own_selector(root: Node) -> Iterator[Problem]:
    """Written as for a Deployment; an object that was read from a cluster has a uid."""
    spec = root.get("spec")
    manual = bool_at(spec, "manualSelector")
    if spec is None or spec.get("selector") is None or root.get("metadata", "uid") is not None:
        return
    if manual is None or (manual.known and not manual.value):
        said = f"a Job makes its selector itself: {_REFUSED} with one of your own"
        yield problem(spec.key_span("selector"), said, "remove it", why=why_refused("Job"))
