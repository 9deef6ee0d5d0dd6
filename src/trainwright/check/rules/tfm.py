"""TFM: Terraform: EKS node groups with accelerators, and the values of variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, Queue, known
from trainwright.check.readers.terraform_variables import declared
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines
from trainwright.errors import did_you_mean

_WITHOUT_DRIVER = {
    "AL2_x86_64", "AL2_ARM_64", "AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD", "BOTTLEROCKET_x86_64",
    "BOTTLEROCKET_ARM_64",
}  # fmt: skip
_TRAINING_CARDS = 4
_SERVES = re.compile(r"infer|serv", re.IGNORECASE)  # one node answers a request
_EFA = re.compile(r"(?<![a-z])efa(?![a-z])", re.IGNORECASE)  # the word, not a part of "default"


@rule("TFM001", "error")
def node_groups_have_drivers(file: File) -> Iterator[Problem]:
    """An EKS node group with accelerators needs an image with their driver, EFA, and its Capacity Block named.

    `ami_type` of a GPU group is one with NVIDIA's driver (AL2023_x86_64_NVIDIA, AL2_x86_64_GPU,
    BOTTLEROCKET_x86_64_NVIDIA); a group of several nodes with at least four EFA cards each sets `enable_efa_support`
    of the module, or has a launch template with EFA interfaces, which the resource `aws_eks_node_group` needs (a
    warning); `capacity_type = "CAPACITY_BLOCK"` needs the market type in `instance_market_options`.

    Why: without the driver the device plugin finds no GPU and pods stay pending on nodes that are paid for; without EFA
    NCCL falls back to TCP (100 instead of 3,200 Gbps on p5.48xlarge); EKS rejects a Capacity Block without its market
    type.

    Fix: as the message says.

    Source: EKS user guide, accelerated AMIs and Capacity Blocks; terraform-aws-modules/eks 20, `enable_efa_support`.

    When to ignore: the GPU operator installs the driver, or the variables of the module set what is missing.
    """
    if file.format != "terraform":
        return
    for _, queue in file.queues:
        yield from _driver(queue)
        yield from _efa(file, queue)
        if known(queue.capacity) == "block" and queue.capacity is not None and not _has_template(queue):
            yield problem(
                queue.capacity,
                f"{queue.label}: CAPACITY_BLOCK without instance_market_options: EKS rejects the group",
                'add instance_market_options = { market_type = "capacity-block" } and the reservation',
            )


def _has_template(queue: Queue) -> bool:
    return bool({"launch_template", "market"} & queue.extra.keys())


def _driver(queue: Queue) -> Iterator[Problem]:
    image = queue.extra.get("ami_type")
    gpus = [type_ for _, type_ in machines(queue) if type_.gpus]
    if image is not None and image.known and image.value in _WITHOUT_DRIVER and gpus:
        right = "AL2023_ARM_64_NVIDIA" if "ARM" in image.value else "AL2023_x86_64_NVIDIA"
        yield problem(
            image, f"{queue.label}: {image.value} has no driver for the GPUs of {gpus[0].name}", f"write {right}"
        )


def _efa(file: File, queue: Queue) -> Iterator[Problem]:
    largest = known(queue.max_count)
    if (
        queue.efa is not None
        or "launch_template" in queue.extra
        or largest is None
        or largest < 2
        or _EFA.search(file.text)
        or _SERVES.search(queue.label)
    ):
        return
    for value, type_ in machines(queue):
        if type_.efa_cards >= _TRAINING_CARDS:
            yield problem(
                value,
                f"{queue.label}: {type_.name} without EFA leaves {type_.efa_cards} network cards unused",
                "name a launch_template whose network_interfaces have interface_type efa"
                if "resource" in queue.extra
                else "set enable_efa_support = true",
                level="warning",
            )
            return


@rule("TFM002", "warning")
def values_have_a_variable(file: File) -> Iterator[Problem]:
    """A value in a .tfvars file must be of a variable that the configuration declares.

    The `variable` blocks are those of the .tf files in the same directory or, where it has none, in the one above it.

    Why: Terraform prints one warning among the lines of a plan and goes on with the default: a misspelled `node_count =
    16` deploys the default of 2.

    Fix: correct the name, declare the variable, or remove the line.

    Source: Terraform 1.9, "Value for undeclared variable".

    When to ignore: one file of values serves several configurations on purpose.
    """
    if file.format != "tfvars" or file.path == "<stdin>":
        return
    names = declared(file.path)
    for name, _ in file.nodes[0].items() if names else ():
        if name not in names:
            hint = did_you_mean(name, sorted(names)) or "declare the variable, or remove the line"
            yield problem(file.nodes[0].key_span(name), f"no variable {name!r} is declared: the value is unused", hint)
