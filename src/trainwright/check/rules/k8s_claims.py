"""K8S: claims of volumes that one node can mount, used by pods on several."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.model import File, Value
from trainwright.check.readers.kubernetes_pods import INSTANCE_LABELS, maps_at
from trainwright.check.readers.values import text_at, texts_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import PodGroup, kind_of, may_share_a_namespace, name_of, pod_groups
from trainwright.check.rules.k8s_kueue import gpus_of
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.check.tables import machine
from trainwright.spec.source import Node

_CLAIM = "PersistentVolumeClaim"
_ONE_NODE = ("ReadWriteOnce", "ReadWriteOncePod")
_BLOCK_DRIVERS = ("ebs.csi.aws.com", "kubernetes.io/aws-ebs", "ebs.csi.eks.amazonaws.com")
_BLOCK_NAMES = re.compile(r"(^|.*[-_.])(gp[23]|io[12]|st1|ebs)([-_.].*|$)", re.IGNORECASE)  # sc1 is also a first class
_SHARED_NAMES = re.compile(r"nfs|efs|fsx|lustre|ceph|gluster|rwx|shared", re.IGNORECASE)  # a server on EBS volumes
_MOST_GPUS = 8  # of one node: two pods with more than half of them are on two nodes
_ATTACHED_ONCE = (
    "an EBS volume is attached to one instance: the pods on the other nodes stay in ContainerCreating "
    "(`Multi-Attach error for volume`), and all ranks wait for them."
)
_NO_SUCH_MODE = (
    "the driver of EBS makes no file system for several nodes: the claim stays Pending, and its pods with it."
)


def shared_claims(file: File) -> Iterator[Problem]:
    """Claims of EBS volumes that the pods of one object share, and claims that EBS does not serve."""
    own = [root for root in file.nodes if kind_of(root) == _CLAIM]
    for claim in own:
        yield from _many_writers(file, claim)
    for root in file.nodes:
        for name, groups in _by_claim(root).items():
            claims = [one for one in own if name_of(one) == name and may_share_a_namespace(one, root)]
            beside = [] if claims else _beside(file, root, name)
            for claim in claims or beside[:1]:
                yield from _shared(file, claim, name, groups, beside=bool(beside))


def _beside(file: File, root: Node, name: str) -> list[Node]:
    """A claim of another manifest of the directory, where there is one of the name."""
    roots = [node for other in manifests_beside(file, _CLAIM) for node in other.nodes if kind_of(node) == _CLAIM]
    there = [node for node in roots if name_of(node) == name and may_share_a_namespace(node, root)]
    return there if len(there) == 1 else []


def _by_claim(root: Node) -> dict[str, list[tuple[PodGroup, Value[str]]]]:
    """The groups of pods of an object that use each claim, and where they name it."""
    users: dict[str, list[tuple[PodGroup, Value[str]]]] = {}
    for group in pod_groups(root):
        for volume in maps_at(group.spec, "volumes"):
            name = text_at(volume, "persistentVolumeClaim", "claimName")
            if name is not None and name.known:
                users.setdefault(name.value, []).append((group, name))
    return users


def _shared(
    file: File, claim: Node, name: str, users: list[tuple[PodGroup, Value[str]]], *, beside: bool
) -> Iterator[Problem]:
    modes = texts_at(claim, "spec", "accessModes")
    pods = sum(group.count or 0 for group, _ in users)
    if pods < 2 or not modes or any(mode.value not in _ONE_NODE for mode in modes):
        return
    level = _level(file, claim)
    if level is None or not all(_fill_a_node(group) for group, _ in users):
        level = "info"  # the class of the cluster may serve several nodes, and the pods may be on one
    at = users[0][1] if beside else modes[0]
    yield problem(
        at,
        f"{pods} pods share the claim {name}, which is {modes[0].value}: one node can mount it",
        "use ReadWriteMany with a shared file system (FSx for Lustre, EFS)",
        level=level,
        why=_ATTACHED_ONCE,
    )


def _many_writers(file: File, claim: Node) -> Iterator[Problem]:
    mode, level = text_at(claim, "spec", "volumeMode"), _level(file, claim)
    several = [one for one in texts_at(claim, "spec", "accessModes") if one.value in ("ReadWriteMany", "ReadOnlyMany")]
    if level is not None and several and (mode is None or mode.value == "Filesystem"):
        said = f"{several[0].value} of an EBS volume: the claim is never bound"
        yield problem(several[0], said, "use a class of FSx for Lustre or EFS", level=level, why=_NO_SUCH_MODE)


def _level(file: File, claim: Node) -> Level | None:
    """How certain it is that a claim is of EBS: an error where the file has the class, a warning by its name."""
    named = text_at(claim, "spec", "storageClassName")
    if named is None or not named.known or text_at(claim, "spec", "volumeName") is not None:
        return None
    classes = [root for root in file.nodes if kind_of(root) == "StorageClass" and name_of(root) == named.value]
    drivers = [driver.value for root in classes if (driver := text_at(root, "provisioner")) is not None]
    if drivers:
        return "error" if drivers[0] in _BLOCK_DRIVERS else None
    by_name = _BLOCK_NAMES.fullmatch(named.value) and not _SHARED_NAMES.search(named.value)
    return "warning" if by_name else None


def _fill_a_node(group: PodGroup) -> bool:
    """Whether two of the pods cannot be on one node."""
    gpus = gpus_of(group.spec) or 0
    labels = [text_at(group.spec, "nodeSelector", label) for label in INSTANCE_LABELS]
    types = [machine(label) for label in labels if label is not None]
    most = next((type_.gpus for type_ in types if type_ is not None and type_.gpus), _MOST_GPUS)
    apart = group.spec.get("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return 2 * gpus > most or (
        apart is not None and any(node.text == "kubernetes.io/hostname" for node in apart.walk())
    )
