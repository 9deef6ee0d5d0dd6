"""Whether a framework that is told a model's sizes one by one is told all of it. A property that its file has no option
for, such as norms of queries and keys, would be dropped: another model would be trained than the one predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from trainwright.jobs.foreign import Problem
from trainwright.jobs.places import shape_values
from trainwright.recipes.framework import Framework, matching
from trainwright.train.models.shape import ModelShape

if TYPE_CHECKING:
    from trainwright.jobs.resolved import Training

# What is no property of the trained function, or follows from others: names, limits, numbers that every file states.
APART = {
    "name", "family", "source", "context", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim",
    "norm_eps", "norm_bias", "rope_theta", "experts_per_token", "balance_loss", "image", "patch", "channels",
}  # fmt: skip
# The place that a property reaches a framework by, where it is called otherwise.
PLACE_OF = {"rope_scaling": "rope_factor"}


def unsaid_model(known: Framework, training: Training | None) -> Iterator[Problem]:
    """A problem where a model, or some of it, cannot be told to the framework."""
    if training is None or training.model is None or not known.spells_shape:
        return
    if training.shape is None:
        yield ("model",), f"{known.title} is told a model's sizes, and those of {training.model!r} are not known", (
            "name a model of `trainwright catalog list --kind models`, or the path of its config.json"
        )  # fmt: skip
        return
    lost = unsaid_properties(known, training.shape)
    if lost:
        yield ("model",), (
            f"{known.title} would train another model than {training.model}: there is no option here for "
            f"{', '.join(lost)}"
        ), "use a framework that has the model by name (`trainwright recipes list`), or our own trainer"  # fmt: skip


def unsaid_properties(known: Framework, shape: ModelShape) -> list[str]:
    """Properties of a model, other than the plain decoder's, that no option of the framework carries."""
    values = shape_values(shape, tp=1)
    lost = []
    for field in fields(ModelShape):
        value = getattr(shape, field.name)
        if field.name in APART or value == field.default:
            continue
        place = PLACE_OF.get(field.name, field.name)
        if matching(known.when.get(place, {}), values.get(place)) is None:
            lost.append(field.name)
    return lost
