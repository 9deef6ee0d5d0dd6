"""EKS: the image that a node group takes in place of one with Amazon Linux 2, or of one without the driver that it
needs."""

from __future__ import annotations

import re

from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.check.model import Queue
from trainwright.check.tables import machines, table

_NEURON = re.compile(r"(inf|trn)\d")


def successor(image: str, queue: Queue | None = None) -> str:
    """The image that takes the place of another: for the processors of a group, with the driver of its accelerators."""
    types = _types(queue) if queue is not None else []
    if types and all(type_.arch == "arm64" for type_ in types):
        image = image.replace("AL2_x86_64_GPU", "AL2_x86_64").replace("x86_64", "ARM_64")
    elif types and all(type_.arch == "x86_64" for type_ in types):
        image = image.replace("ARM_64", "x86_64")
    neuron = queue is not None and any(_NEURON.match(one.value) for one in queue.instances)
    if image.startswith("AL2_x86_64") and neuron:
        return "AL2023_x86_64_NEURON"
    return _with_driver(image, types) or str(table("eks")["successors"].get(image, ""))


def image_with_driver(image: str, queue: Queue) -> str:
    """The image with the driver for the GPUs of a group, in place of one without; empty where it has no GPUs."""
    return _with_driver(image, [type_ for _, type_ in machines(queue)])


def _with_driver(image: str, types: list[InstanceType]) -> str:
    gpus = [type_ for type_ in types if type_.gpus]
    image = str(table("eks")["with_driver"].get(image, "")) if gpus else ""
    other = ("x86_64", "ARM_64") if gpus and gpus[0].arch == "arm64" else ("ARM_64", "x86_64")
    return image.replace(*other)


def _types(queue: Queue) -> list[InstanceType]:
    """The instance types of a group, those on which Amazon Linux 2023 does not run as the newer ones to take."""
    newer = table("eks")["amazon_linux_2023"]["newer_types"]
    names = [newer.get(one.value.partition(".")[0], one.value) for one in queue.instances if one.known]
    return [type_ for type_ in map(find_instance, names) if type_ is not None]
