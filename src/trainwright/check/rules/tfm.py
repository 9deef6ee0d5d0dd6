"""TFM: Terraform: EKS node groups with accelerators, and the values of variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.catalog.instances import InstanceType
from trainwright.check import reasons
from trainwright.check.around import texts
from trainwright.check.model import Cluster, File, Queue, Value, known
from trainwright.check.readers.terraform_variables import declared, is_written_beside
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfn_user_data import plain_launch_templates
from trainwright.check.rules.eks_changes import (
    AMAZON_LINUX_2,
    changes_of_an_image,
    changes_of_the_provider,
    major,
)
from trainwright.check.rules.eks_successors import image_with_driver
from trainwright.check.shared_values import own_place, sharing
from trainwright.check.tables import machines
from trainwright.errors import did_you_mean

_OPERATOR = re.compile(r"gpu[-_]operator", re.IGNORECASE)
_COMMUNITY = re.compile(r"terraform-aws-modules/(terraform-aws-)?eks")
_WITH_EFA_SUPPORT = 20
_TRAINING_CARDS = 4
_SERVES = re.compile(r"infer|serv", re.IGNORECASE)  # one node answers a request
_EFA = re.compile(r"(?<![a-z])efa(?![a-z])", re.IGNORECASE)  # the word, not a part of "default"


@rule("TFM001", "error")
def node_groups_have_drivers(file: File) -> Iterator[Problem]:
    """An EKS node group with accelerators needs an image with their driver, EFA, and its Capacity Block named.

    `ami_type` of a GPU group is one with NVIDIA's driver (AL2023_x86_64_NVIDIA, AL2_x86_64_GPU,
    BOTTLEROCKET_x86_64_NVIDIA), and every `ami_type` is of the nodes' architecture; a group of several nodes with at
    least four EFA cards each sets `enable_efa_support` of the module, or has a launch template with EFA interfaces,
    which the resource `aws_eks_node_group` needs (a warning); `capacity_type = "CAPACITY_BLOCK"` needs the market type
    in `instance_market_options`; the resource with a launch template has no `disk_size` and no `remote_access` beside
    it; `user_data` of a launch template is in base64, also where `file(…)` reads it.

    Why: without the driver the device plugin finds no GPU and pods stay pending on nodes that are paid for; without EFA
    NCCL falls back to TCP (100 instead of 3,200 Gbps on p5.48xlarge); EKS rejects a Capacity Block without its market
    type.

    Fix: as the message says.

    Source: EKS user guide, accelerated AMIs and Capacity Blocks; terraform-aws-modules/eks 20, `enable_efa_support`.

    When to ignore: the GPU operator installs the driver, or the variables of the module set what is missing.
    """
    if file.format != "terraform":
        return
    yield from plain_launch_templates(file)
    for cluster, queue in file.queues:
        yield from _driver(file, cluster, queue)
        yield from _architecture(cluster, queue)
        yield from _efa(file, cluster, queue)
        yield from _beside_template(queue)
        if known(queue.capacity) == "block" and queue.capacity is not None and not _has_template(queue):
            in_template = "name a launch_template with the market type capacity-block and the reservation" + _moved(
                queue
            )
            in_group = 'add instance_market_options = { market_type = "capacity-block" } and the reservation'
            yield problem(
                queue.capacity,
                f"{queue.label}: CAPACITY_BLOCK without instance_market_options: EKS rejects the group",
                in_template if "resource" in queue.extra else in_group,
                why="EC2 starts an instance of a Capacity Block only with its market type.",
            )


def _beside_template(queue: Queue) -> Iterator[Problem]:
    """Of the resource alone: the module leaves its disk_size out where it has a template."""
    access, disk = queue.extra.get("remote_access"), queue.root_volume_gib
    if "resource" not in queue.extra or "template_block" not in queue.extra:
        return
    for name, value in (("disk_size", disk if known(disk) else None), ("remote_access", access)):
        if value is not None:
            what = f"{queue.label}: {name} beside a launch_template: EKS refuses the group"
            yield problem(
                value.key or value.span, what, "move it into the launch template", why=reasons.DISK_IN_TEMPLATE
            )


def _moved(queue: Queue) -> str:
    """What the resource may not state beside a launch template."""
    stated = (("disk_size", queue.root_volume_gib), ("remote_access", queue.extra.get("remote_access")))
    names = [name for name, value in stated if value is not None and "resource" in queue.extra]
    return f", and move {' and '.join(names)} into it" if names else ""


def _has_template(queue: Queue) -> bool:
    return bool({"launch_template", "market"} & queue.extra.keys())


def _driver(file: File, cluster: Cluster, queue: Queue) -> Iterator[Problem]:
    image, right = _image(queue), _right_image(queue)
    if image is None or not right:
        return
    place = own_place(cluster, queue, _image, lambda one: _right_image(one) == right)
    groups = sharing(cluster, queue, _image) if place is None else [queue]
    if groups[0] is not queue:
        return  # reported once, at the defaults
    gpus = [type_ for _, type_ in machines(queue) if type_.gpus]
    is_old = AMAZON_LINUX_2.fullmatch(image.value) is not None
    also = changes_of_an_image(file, cluster, groups) if is_old else list(changes_of_the_provider(file, [right]))
    write = f"write {right}" if place is None else f'add ami_type = "{right}" to this group'
    yield problem(
        place or image,
        f"{', '.join(one.label for one in groups)}: {image.value} has no driver for the GPUs of {gpus[0].name}",
        write + (f", with {', '.join(also)}" if also else ""),
        level="info" if all(_may_do_without(file, one) for one in groups) else None,
        why="the device plugin finds no GPU, and pods that request one stay pending on nodes that are paid for.",
    )


def _image(queue: Queue) -> Value[str] | None:
    return queue.extra.get("ami_type")


def _right_image(queue: Queue) -> str:
    """The image with the driver that a group needs instead of its own; empty where that is right or not known."""
    image = _image(queue)
    if image is None or not image.known or "own_image" in queue.extra:
        return ""
    return image_with_driver(image.value, queue)


def _may_do_without(file: File, queue: Queue) -> bool:
    """Whether something else may install the driver; beside types without a GPU one may be there for its CPUs."""
    return _may_install_it(file, queue) or sum(type_.gpus > 0 for _, type_ in machines(queue)) < len(queue.instances)


_IMAGE_ARCHITECTURE = re.compile(r"_(x86_64|ARM_64)(_|$)")


def _architecture(cluster: Cluster, queue: Queue) -> Iterator[Problem]:
    image, other = _image(queue), _other_machine(queue)
    if image is None or other is None:
        return
    place = own_place(cluster, queue, _image, lambda one: _other_machine(one) is not None)
    arch = "arm64" if other.arch == "x86_64" else "x86_64"
    what = f"{queue.label}: {image.value} is an image for {arch}, and {other.name} is {other.arch}"
    own = place is not None and all(type_.arch == other.arch for _, type_ in machines(queue))
    fix = "take an image type and instance types of one architecture"
    fix = f"add an ami_type for {other.arch} to this group" if own else fix
    why = "EKS refuses a node group whose image does not start on its nodes."
    yield problem(place or image, what, fix, why=why)


def _other_machine(queue: Queue) -> InstanceType | None:
    """An instance type of a group that its image is not for."""
    image = _image(queue)
    match = _IMAGE_ARCHITECTURE.search(image.value) if image is not None and image.known else None
    if match is None or {"own_image", "launch_template"} & queue.extra.keys():
        return None
    arch = "arm64" if match[1] == "ARM_64" else "x86_64"
    return next((type_ for _, type_ in machines(queue) if type_.arch != arch), None)


def _may_install_it(file: File, queue: Queue) -> bool:
    """Whether the operator may install the driver, or a script that the node runs at its start."""
    boots = "user_data" in queue.extra or ("launch_template" in queue.extra and "user_data" in file.text)
    if boots or _OPERATOR.search(file.text) is not None or is_written_beside(file.path, _OPERATOR):
        return True
    folder = os.path.dirname(os.path.abspath(file.path))
    around = texts(folder) if file.path != "<stdin>" else ()  # `helm install` of a README, Makefile or script
    return any(_OPERATOR.search(text) for _, text in around)


def _efa(file: File, cluster: Cluster, queue: Queue) -> Iterator[Problem]:
    largest = known(queue.max_count)
    if (
        cluster.platform != "eks"
        or queue.efa is not None
        or "launch_template" in queue.extra
        or largest is None
        or largest < 2
        or _EFA.search(file.text)
        or _SERVES.search(queue.label)
    ):
        return
    supported = _has_efa_support(cluster, queue)
    for value, type_ in machines(queue):
        if type_.efa_cards >= _TRAINING_CARDS:
            yield problem(
                value,
                f"{queue.label}: {type_.name} without EFA leaves {type_.efa_cards} network cards unused",
                _efa_support(cluster)
                if supported
                else f"name a launch_template whose network_interfaces have interface_type efa{_moved(queue)}",
                level="warning" if supported or "resource" in queue.extra else "info",
                why="NCCL between nodes uses TCP over the first card.",
            )
            return


def _efa_support(cluster: Cluster) -> str:
    """Up to version 20 the module itself opens the nodes' security group for EFA only where it is told too."""
    first = major(cluster)
    if first is not None and first > _WITH_EFA_SUPPORT:
        return "set enable_efa_support = true"
    also = "" if first is not None else " (up to version 20 of the module)"
    return f"set enable_efa_support = true, in the group and{also} in the module"


def _has_efa_support(cluster: Cluster, queue: Queue) -> bool:
    """Whether the group is one of a module that has `enable_efa_support`: the community's, from version 20 on. Others
    wrap it, under names of their own."""
    source, first = cluster.extra.get("source"), major(cluster)
    ours = source is None or _COMMUNITY.search(source.value) is not None
    return ours and "resource" not in queue.extra and (first is None or first >= _WITH_EFA_SUPPORT)


_UNDECLARED = "declare the variable, or remove the line"


@rule("TFM002", "warning")
def values_have_a_variable(file: File) -> Iterator[Problem]:
    """A value in a .tfvars file must be of a variable that the configuration declares.

    The `variable` blocks are those of the .tf files in the same directory or, where it has none, in the one above it.
    Not reported where one of them cannot be read, nor under Terragrunt, which takes the configuration from elsewhere; a
    note where most values of the file have no variable.

    Why: Terraform prints one warning among the lines of a plan and goes on with the default: a misspelled `node_count =
    16` deploys the default of 2.

    Fix: correct the name, declare the variable, or remove the line.

    Source: Terraform 1.9, "Value for undeclared variable".

    When to ignore: one file of values serves several configurations on purpose.
    """
    if file.format != "tfvars" or file.path == "<stdin>":
        return
    names, values = declared(file.path), [name for name, _ in file.nodes[0].items()]
    missing = [name for name in values if name not in names] if names else []
    for name in missing:
        hint = did_you_mean(name, sorted(names))
        given = bool(hint) and any(repr(other) in hint for other in values)  # Terraform refuses a second value
        yield problem(
            file.nodes[0].key_span(name),
            f"no variable {name!r} is declared: the value is unused",
            "remove the line: the variable that it resembles has a value" if given else hint or _UNDECLARED,
            # A file most of whose values are of other variables belongs to another configuration.
            level=None if hint or 2 * len(missing) <= len(values) else "info",
        )
