"""What a renderer works with: the spec with its defaults filled in. Verbs run `check` first (`check/gate.py`), so a
renderer meets no spec that its platform cannot build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType, instance
from trainwright.spec.model import Queue, Spec

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Setting:
    """A checked spec, with every default filled in."""

    spec: Spec
    offers: Mapping[str, tuple[str, ...]] | None = None  # instance type -> zone ids that offer it, where AWS was asked

    def queue_instance(self, queue: Queue) -> InstanceType:
        """The catalog's row for a queue's instance type."""
        assert queue.instance is not None, "check: SPC006"
        return instance(queue.instance)


def gib(size: int | None) -> int:
    """Bytes as whole GiB, rounded up: no file system is made smaller than was asked for."""
    return -(-(size or 0) // GIB)


def lustre_gib(size: int | None) -> int:
    """Bytes as the GiB FSx counts in: it sells 4,800 GiB under the name 4.8 TiB, and people write what it is called."""
    exact = gib(size)
    tenths = round((size or 0) / 2**40 * 10, 6)
    return exact if exact % 1200 == 0 or not tenths.is_integer() else round(tenths) * 100
