"""What a renderer works with: the spec with its defaults filled in, and a way to refuse what a platform cannot do, at
the place where it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from trainwright.catalog.instances import InstanceType, find_instance, instance
from trainwright.errors import UserError
from trainwright.spec.load import LoadedSpec
from trainwright.spec.model import Queue, Spec

GIB = 2**30
Where = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved spec and where its parts were written."""

    spec: Spec
    where: Where

    def refuse(self, *path: str | int, what: str, fix: str = "") -> NoReturn:
        """Stop with an error at the place of a path in the user's file."""
        raise UserError(what, where=self.where(*path), fix=fix)

    def instance(self, name: str | None, *path: str | int) -> InstanceType:
        """The catalog's row for an instance type the user wrote."""
        if name is None:
            self.refuse(*path, what="no instance type was named", fix="add `instance: p5.48xlarge`, for example")
        found = find_instance(name)
        if found is None:
            try:
                return instance(name)
            except UserError as error:
                self.refuse(*path, what=error.what, fix=error.fix)
        return found

    def queue_instance(self, index: int, queue: Queue) -> InstanceType:
        return self.instance(queue.instance, "queues", index, "instance")


def setting_of(loaded: LoadedSpec, spec: Spec) -> Setting:
    return Setting(spec, loaded.where)


def gib(size: int | None) -> int:
    """Bytes as whole GiB, rounded up: no file system is made smaller than was asked for."""
    return -(-(size or 0) // GIB)


def lustre_gib(size: int | None) -> int:
    """Bytes as the GiB FSx counts in: it sells 4,800 GiB under the name 4.8 TiB, and people write what it is called."""
    exact = gib(size)
    tenths = round((size or 0) / 2**40 * 10, 6)
    return exact if exact % 1200 == 0 or not tenths.is_integer() else round(tenths) * 100
