"""Values that several node groups have from one place: what Terraform's community module calls their defaults. A fix at
that place changes all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.check.model import Cluster, Queue, Value
from trainwright.spec.source import Span

Field = Callable[[Queue], Value[Any] | None]


def sharing(cluster: Cluster, queue: Queue, field: Field) -> list[Queue]:
    """The groups of a cluster that have the value from the same place as one of them, which is among them."""
    value = field(queue)
    return [one for one in cluster.queues if value is not None and _span(field(one)) == value.span]


def own_place(cluster: Cluster, queue: Queue, field: Field, is_wrong: Callable[[Queue], bool]) -> Value[Any] | None:
    """Where a group says something else: the group itself, where the value is right for others; None where all that
    have the value need another, so that it is changed at its own place."""
    return None if all(map(is_wrong, sharing(cluster, queue, field))) else queue.name


def _span(value: Value[Any] | None) -> Span | None:
    return value.span if value is not None else None
