"""EKS: node images whose support has ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from trainwright.catalog import versions
from trainwright.catalog.version_numbers import Version, find_version, parse_version
from trainwright.check.finding import Level
from trainwright.check.model import Cluster, File, Queue, Value
from trainwright.check.readers.cfn_template import Template, template_of
from trainwright.check.readers.values import text_at, texts_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.eks_changes import (
    AMAZON_LINUX_2,
    changes_of_an_image,
    images_of_a_module,
    images_to_take,
    newer_versions,
    places_of_the_version,
    release_of_an_image,
    together_with,
)
from trainwright.check.rules.eks_successors import successor
from trainwright.check.tables import machines
from trainwright.spec.source import Node

_ENDED = date(2025, 11, 26)
_FIRST_WITHOUT = "1.33"
_OF_THE_OLD = "made for Amazon Linux 2 (user data, packages, disks, releases, providers)"


@rule("EKS002", "warning")
def node_image_is_supported(file: File) -> Iterator[Problem]:
    """Nodes of EKS should not use the images with Amazon Linux 2.

    Read from `amiFamily` of eksctl and of Karpenter's EC2NodeClass (or its alias `al2@…`), `ami_type` of Terraform,
    `AmiType` of CloudFormation. From Kubernetes 1.33 on there is no such image, which is an error where the file states
    the version.

    Why: support ended on 26 November 2025, and the last image was released in the following month: no patches of the
    kernel, no newer NVIDIA or EFA driver since. EKS itself supports each version of Kubernetes for 26 months: 1.32, the
    last one with these images, until March 2027.

    Fix: the same image of Amazon Linux 2023: `AL2023_x86_64_NVIDIA`, `amiFamily: AmazonLinux2023`. User data of
    Amazon Linux 2 (`/etc/eks/bootstrap.sh`) becomes a NodeConfig for nodeadm.

    Source: awslabs/amazon-eks-ami issue 2545; EKS user guide, Kubernetes versions; eksctl, AmazonLinux2EOLVersion.

    When to ignore: the cluster is deleted before its next upgrade.
    """
    groups = [(queue.extra["ami_type"], cluster, queue) for cluster, queue in file.queues if _has_image(queue)]
    classes = [(image, None, None) for root in _classes(file) for image in _of_class(root)]
    old = [one for one in (*groups, *classes) if _is_old(one[0], _version(*one[1:]))]
    for refused in (True, False):
        some = [one for one in old if _is_refused(_version(*one[1:])) is refused]
        first = next((one for one in some if not _lacks_a_driver(file, one[2])), None)
        if first is not None:
            yield _problem(file, first, some, refused)


_Old = tuple[Value[str], Cluster | None, Queue | None]  # an image, and the group that has it


def _version(cluster: Cluster | None, queue: Queue | None) -> Value[str] | None:
    if cluster is None or queue is None:
        return None  # Karpenter's, for clusters of other files
    return cluster.version or queue.extra.get("version")


def _is_refused(version: Value[str] | None) -> bool:
    stated = _number(version)
    return stated is not None and stated >= parse_version(_FIRST_WITHOUT)


def _number(version: Value[str] | None) -> Version | None:
    return find_version(version.value) if version is not None and version.known else None


def _changes(file: File, first: _Old, old: list[_Old], images: list[str]) -> list[str]:
    """What has to change together with the images, of any cluster of the file."""
    changes = list(_changes_of_template(file, first[0]))
    for cluster in [None] if first[1] is None else file.clusters:
        queues = [queue for _, other, queue in old if queue is not None and other is cluster]
        if queues or cluster is None:
            changes += changes_of_an_image(file, cluster, queues)
            changes += images_of_a_module(cluster) if cluster is not None else []
    return list(dict.fromkeys([*changes, *release_of_an_image(file, images)]))


def _changes_of_template(file: File, image: Value[str]) -> Iterator[str]:
    """What a template refuses beside the new image: a list of values that lacks it, and an old version of a cluster."""
    template = template_of(file) if file.format == "cloudformation" else None
    if template is None:
        return
    for name, parameter in template.parameters.items():
        default, allowed = parameter.get("Default"), parameter.get("AllowedValues")
        listed = [one.text for one in allowed.elements()] if allowed is not None else []
        if default is not None and default.span == image.span and listed and successor(image.value) not in listed:
            yield f"it in the AllowedValues of {name} too"
    for resource in template.of("EKS::Cluster"):
        version = template.text(resource.get("Version"))
        if version is not None and version.known and _support(version.value) == "ended":
            yield f"Version {newer_versions() or 'of today'} in {resource.id}{_also_allowed(template, version)}"
            yield from places_of_the_version(file, version)


def _also_allowed(template: Template, version: Value[str]) -> str:
    """Whether the default of a parameter is the version, and its list of values has no newer one."""
    for name, parameter in template.parameters.items():
        default, allowed = parameter.get("Default"), parameter.get("AllowedValues")
        if default is not None and default.span == version.span and allowed is not None:
            newer = newer_versions().split(" or ")
            return "" if any(one.text in newer for one in allowed.elements()) else f" (and in AllowedValues of {name})"
    return ""


def _has_image(queue: Queue) -> bool:
    """Whether a queue is a node group on an image of EKS."""
    return "ami_type" in queue.extra and "own_image" not in queue.extra


def _lacks_a_driver(file: File, queue: Queue | None) -> bool:
    """Whether a group of Terraform has an image without the driver of its GPUs, which is TFM001's."""
    gpus = queue is not None and any(type_.gpus for _, type_ in machines(queue))
    return file.format == "terraform" and queue is not None and gpus and "GPU" not in queue.extra["ami_type"].value


def _classes(file: File) -> Iterator[Node]:
    for root in file.nodes if file.format == "kubernetes" else ():
        kind = text_at(root, "kind")
        if kind is not None and kind.value == "EC2NodeClass":
            yield root


def _of_class(root: Node) -> list[Value[str]]:
    family = text_at(root, "spec", "amiFamily")
    terms = root.get("spec", "amiSelectorTerms")
    aliases = [value for term in (terms.elements() if terms is not None else ()) for value in texts_at(term, "alias")]
    return aliases or ([family] if family is not None and terms is None else [])


def _is_old(image: Value[str], version: Value[str] | None) -> bool:
    """Whether it is an image with Amazon Linux 2, of a version of Kubernetes that EKS has not ended (EKS001's)."""
    if not image.known or not AMAZON_LINUX_2.fullmatch(image.value) or versions.today() < _ENDED:
        return False
    return version is None or _number(version) is None or _support(version.value) != "ended"


def _support(version: str) -> str:
    return versions.kubernetes_support(version, versions.today())


def _problem(file: File, first: _Old, old: list[_Old], refused: bool) -> Problem:
    image, cluster, queue = first
    taken = list(images_to_take(file, [(one.value, group) for one, _, group in old]))
    images = list(dict.fromkeys(new for _, new, _ in taken))
    several = ", ".join(f"{new} instead of {before}{where}" for before, new, where in taken)
    fix = f"use {several if len(images) > 1 else ''.join(images) or 'al2023 with a date'}"
    fix += together_with(_changes(file, first, old, images), _OF_THE_OLD)
    others = len(old) - 1
    more = f" ({others} more group{'s' if others > 1 else ''} of this file)" if others else ""
    if refused:
        message = (
            f"Kubernetes {_number(_version(cluster, queue))} has no image with Amazon Linux 2: no node starts{more}"
        )
        why = f"EKS has no image with Amazon Linux 2 from Kubernetes {_FIRST_WITHOUT} on, and refuses the group."
        return problem(image, message, fix, level="error", why=why)
    message = f"support of EKS images with Amazon Linux 2 ended on {_ENDED:%d %B %Y}{more}"
    level: Level | None = None if queue is not None else "info"  # Karpenter also serves other clusters
    return problem(image, message, fix, level=level)
