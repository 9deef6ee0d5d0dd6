"""StorageClasses of FSx for Lustre, from which volumes are made for claims."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.readers.values import text_at, value_of
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_DRIVER = "fsx.csi.aws.com"


def classes_without_subnet(file: File) -> Iterator[Problem]:
    """Classes that no volume can be made from; those of volumes that exist already need no subnet."""
    if file.format != "kubernetes" or file.template or _DRIVER not in file.text:
        return
    for root in file.nodes:
        name, driver = text_at(root, "metadata", "name"), text_at(root, "provisioner")
        if not _is_a(root, "StorageClass") or driver is None or driver.value != _DRIVER or name is None:
            continue
        parameters = root.get("parameters")
        written = parameters is None or parameters.is_map or (parameters.value is None and value_of(parameters).known)
        subnet = text_at(root, "parameters", "subnetId")
        if (subnet is not None and subnet.text) or not written or not name.known or _has_volumes(file, name.value):
            continue
        claimed = any(_asks_for(claim, name.value) for claim in _claims(file))
        yield problem(
            driver,
            f"the class {name.value} has no parameters.subnetId: the driver cannot make a file system from it",
            "add subnetId and securityGroupIds below parameters, or claim an existing volume",
            level="warning" if claimed else "info",  # the volume may be in another file
            why="FSx refuses a file system without a subnet: claims stay Pending, and their pods with them.",
        )


def _is_a(root: Node, kind: str) -> bool:
    stated = text_at(root, "kind")
    return stated is not None and stated.value == kind


def _has_volumes(file: File, class_: str) -> bool:
    return any(_is_a(root, "PersistentVolume") and _class(root) == class_ for root in file.nodes)


def _claims(file: File) -> Iterator[Node]:
    for root in file.nodes:
        if _is_a(root, "PersistentVolumeClaim"):
            yield root
        templates = root.get("spec", "volumeClaimTemplates")
        yield from templates.elements() if templates is not None else ()


def _asks_for(claim: Node, class_: str) -> bool:
    """Whether a volume has to be made for it."""
    bound = claim.get("spec", "volumeName") is not None or claim.get("spec", "selector") is not None
    return _class(claim) == class_ and not bound


def _class(node: Node) -> str:
    stated = text_at(node, "spec", "storageClassName")
    return stated.value if stated is not None and stated.known else ""
