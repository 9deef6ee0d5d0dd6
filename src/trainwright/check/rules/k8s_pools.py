"""K8S: Karpenter's node pools for training."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType, find_instance, instance_names
from trainwright.catalog.versions import version_set
from trainwright.check.kustomize import is_completed
from trainwright.check.model import File, Value, known
from trainwright.check.readers.values import int_at, text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_pool_requirements import contradictions, is_class, missing_class
from trainwright.check.rules.k8s_services import manifests_beside
from trainwright.check.rules.k8s_torn import torn_pools
from trainwright.check.tables import machine, sizes_of
from trainwright.errors import did_you_mean
from trainwright.spec.source import Node

_TYPE, _FAMILY = "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"
_ZONE, _CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
_MOVING = ("WhenEmptyOrUnderutilized", "WhenUnderutilized")
_TRAINING_CARDS = 4
_PINNED_FAMILY = "al2023"
_TWO_DIGITS = re.compile(r"[a-z]+\d\d[a-z]*")
_HOURS = re.compile(r"(\d+)h(?:0m)?(?:0s)?")
_SHORT_LIFE = 24


@rule("K8S003", "warning")
def node_pools_suit_training(file: File) -> Iterator[Problem]:
    """A Karpenter node pool for training must not move its pods, spread over zones, or name capacity it cannot use.

    For every pool: an instance type that EC2 does not have; requirements that none of the listed types meets
    (`p5.48xlarge` with the architecture arm64), entries for one key that exclude each other, and a misspelt name of an
    EC2NodeClass of the same file (errors).

    For pools whose types have at least four EFA cards: a consolidation policy that empties underused nodes (in
    `karpenter.sh/v1` also the default), without a budget that forbids it; several zones; `reserved` capacity with an
    EC2NodeClass in the same directory that selects no reservation; nodes that expire within a day; a limit of GPUs or
    CPUs below those of one node; an EC2NodeClass whose image is the latest one, whichever that is.

    Why: moving one pod stops the whole job, and every GPU of it restarts from the last checkpoint. EFA works inside one
    subnet only, so ranks in two zones talk over TCP, with 100 instead of 3,200 Gbps on p5.48xlarge. Karpenter never
    uses a reservation that no class selects. With `@latest` a node that joins later has another driver and kernel than
    the other nodes of its job.

    Fix: `consolidationPolicy: WhenEmpty`; one zone; `capacityReservationSelectorTerms` in the EC2NodeClass; an alias
    with a date.

    Source: Karpenter 1.x, disruption, capacity reservations and amiSelectorTerms; EC2 user guide, EFA limitations.

    When to ignore: every training pod carries `karpenter.sh/do-not-disrupt`, or selects a zone itself.
    """
    roots = file.nodes if file.format == "kubernetes" else []
    classes = {_text(root.get("metadata"), "name"): root for root in roots if _text(root, "kind") == "EC2NodeClass"}
    for root in roots:
        if _text(root, "kind") == "NodePool" and _text(root, "apiVersion").startswith("karpenter.sh/"):
            wanted = _requirements(root)
            yield from _misspelt(wanted)
            yield from contradictions(wanted)
            yield from torn_pools(root)
            yield from missing_class(file, root, classes)
            if types := _training_types(wanted):
                yield from _pool(file, root, classes, wanted)
                yield from _life(root)
                yield from _limits(root, types if wanted.get(_TYPE) else [])


def _text(node: Node | None, key: str) -> str:
    child = node.get(key) if node is not None else None
    return child.text if child is not None and child.is_scalar else ""


def _misspelt(wanted: dict[str, list[Value[str]]]) -> Iterator[Problem]:
    """Types that EC2 does not have: the pool goes on with the others, if there are any."""
    for value in (one for one in wanted.get(_TYPE, []) if _is_no_type(one)):
        family = value.value.partition(".")[0]
        sizes = f"{family} comes as {', '.join(sizes_of(family))}" if sizes_of(family) else ""
        hint = sizes or did_you_mean(value.value, instance_names()) or "remove it"
        said = f"the catalog has no {value.value}: Karpenter starts no such node"
        yield problem(value, said, hint, why="where no other type is listed, pods of this pool stay pending.")


def _is_no_type(value: Value[str]) -> bool:
    """Whether the family is known and has no such size, or has a generation of two digits, which EC2 has not."""
    family, dot, _ = value.value.partition(".")
    return bool(dot and value.known and machine(value) is None and (sizes_of(family) or _TWO_DIGITS.fullmatch(family)))


def _life(root: Node) -> Iterator[Problem]:
    age = text_at(root, "spec", "template", "spec", "expireAfter") or text_at(root, "spec", "disruption", "expireAfter")
    hours = _HOURS.fullmatch(age.value) if age is not None and age.known else None
    if age is not None and hours is not None and int(hours[1]) <= _SHORT_LIFE:
        yield problem(
            age,
            f"Karpenter replaces every node {hours[1]} hours after its start, in the middle of a job too: budgets do "
            "not hold it back",
            "write Never, or more than the longest job",
            level="info",  # pods marked do-not-disrupt hold it back until the grace period ends
        )


def _limits(root: Node, types: list[InstanceType]) -> Iterator[Problem]:
    """A limit that the smallest node exceeds; 0 closes a pool on purpose."""
    least_gpus, least_cpus = min((t.gpus for t in types), default=0), min((t.vcpus for t in types), default=0)
    for name, least in (("nvidia.com/gpu", least_gpus), ("cpu", least_cpus)):
        limit = int_at(root, "spec", "limits", name)
        if limit is not None and limit.known and 0 < limit.value < least:
            yield problem(
                limit,
                f"the limit of {limit.value} {name} is below one node's {least}: the pool never starts one",
                f"write {least} × the nodes that it may have",
                why="Karpenter leaves out instance types that would exceed a limit of the pool.",
            )


def _pool(file: File, root: Node, classes: dict[str, Node], wanted: dict[str, list[Value[str]]]) -> Iterator[Problem]:
    policy = text_at(root, "spec", "disruption", "consolidationPolicy")
    budgets = root.get("spec", "disruption", "budgets")
    still = any(_text(one, "nodes") in ("0", "0%") for one in (budgets.elements() if budgets is not None else ()))
    if policy is not None and policy.value in _MOVING and not still:
        yield problem(
            policy,
            f"{policy.value} moves pods off underused nodes: one move restarts the whole training job",
            'write WhenEmpty, or a budget with nodes: "0"',
            level="info",  # pods marked do-not-disrupt are left alone
        )
    name = text_at(root, "metadata", "name")
    if policy is None and name is not None and not still and _text(root, "apiVersion") == "karpenter.sh/v1":
        yield problem(
            name,
            "no consolidationPolicy: the default moves pods off underused nodes, and one move restarts the whole job",
            "add disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 10m}",
            level="info",
        )
    zones = wanted.get(_ZONE, [])
    if len(zones) > 1:
        what = "a job may be spread over several zones, and EFA works inside one only"
        yield problem(zones[1], what, "name one zone", level="info")
    reference = root.get("spec", "template", "spec", "nodeClassRef")
    node_class = classes.get(_text(reference, "name"))
    if node_class is not None:
        yield from _latest(node_class)
    elif _text(reference, "kind") == "EC2NodeClass":
        node_class = _class_beside(file, _text(reference, "name"))
    if node_class is not None:
        yield from _unreserved(node_class, wanted)


def _class_beside(file: File, name: str) -> Node | None:
    """The one EC2NodeClass of a name in the other files of the directory, where nothing completes it."""
    if is_completed(file.path, {"EC2NodeClass", "NodePool"}):
        return None
    others = [other for other in manifests_beside(file, "EC2NodeClass") if not other.template]
    found = [root for other in others for root in other.nodes if is_class(root, name)]
    return found[0] if len(found) == 1 else None


def _unreserved(node_class: Node, wanted: dict[str, list[Value[str]]]) -> Iterator[Problem]:
    """A pool of reserved capacity whose EC2NodeClass selects none."""
    reserved = next((value for value in wanted.get(_CAPACITY, []) if value.value == "reserved"), None)
    if reserved is not None and node_class.get("spec", "capacityReservationSelectorTerms") is None:
        yield problem(
            reserved,
            f"no reservation is selected by the EC2NodeClass {_text(node_class.get('metadata'), 'name')}",
            "add capacityReservationSelectorTerms to it",
            level=None if len(wanted[_CAPACITY]) == 1 else "info",  # the pool has other capacity to use
            why="Karpenter uses only reservations that the node class selects.",
        )


def _latest(node_class: Node) -> Iterator[Problem]:
    terms = node_class.get("spec", "amiSelectorTerms")
    for term in terms.elements() if terms is not None else ():
        alias = text_at(term, "alias")
        if alias is not None and alias.value.endswith("@latest"):
            family = alias.value.partition("@")[0]
            pinned = f"{family}@{version_set().eks_image}" if family == _PINNED_FAMILY else f"{family}@vDATE"
            yield problem(
                alias,
                f"{alias.value}: a node that joins later has another image than the other nodes of its job",
                f"name one image, such as {pinned}",
                level="info",
            )


def _requirements(root: Node) -> dict[str, list[Value[str]]]:
    """What the pool's `In` requirements allow, by key."""
    wanted: dict[str, list[Value[str]]] = {}
    listed = root.get("spec", "template", "spec", "requirements")
    for one in listed.elements() if listed is not None else ():
        if _text(one, "operator") == "In":
            wanted[_text(one, "key")] = texts_at(one, "values")
    return wanted


def _training_types(wanted: dict[str, list[Value[str]]]) -> list[InstanceType]:
    """The types that the pool allows, if every one is bought for its network; a misspelt one does not count."""
    types = [known(value) or "" for value in wanted.get(_TYPE, []) if not _is_no_type(value)]
    for family in wanted.get(_FAMILY, []) if not wanted.get(_TYPE) else ():
        sizes = sizes_of(family.value)
        types += [f"{family.value}.{max(sizes, key=len)}"] if sizes else [""]
    rows = [find_instance(name) for name in types]
    training = [row for row in rows if row is not None and row.efa_cards >= _TRAINING_CARDS]
    return training if len(training) == len(rows) else []
