"""Objectives: how a batch becomes a loss, what data it needs, what it reports. One file per objective; a file here is
an objective by being here. Names are known without torch, so that the control side can check them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import ModelShape

if TYPE_CHECKING:
    from trainwright.train.config import TrainConfig
    from trainwright.train.objectives.base import Objective

# What is trained where no objective is named.
USUAL = {"decoder": "causal_lm", "encoder": "mlm", "encoder-decoder": "span_corruption", "vision": "dino"}


@cache
def names() -> tuple[str, ...]:
    """Every objective of this folder."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base"))


def name_for(wanted: str, shape: ModelShape) -> str:
    """The objective that is meant: the named one, else the usual one of that kind of model."""
    name = wanted or USUAL.get(shape.kind, "")
    if name not in names():
        fix = did_you_mean(name, names()) or f"one of {', '.join(names())}"
        raise UserError(f"there is no objective {name!r}", fix=fix)
    return name


def objective_for(config: TrainConfig, shape: ModelShape) -> Objective:
    """The objective of a run, with its settings."""
    module = importlib.import_module(f"{__name__}.{name_for(config.objective, shape)}")
    kind: type[Objective] = module.OBJECTIVE
    if shape.kind not in kind.kinds:
        usual = USUAL.get(shape.kind)
        raise UserError(
            f"the objective {config.objective!r} trains models of kind {' or '.join(kind.kinds)}, and {shape.name} "
            f"is of kind {shape.kind}",
            fix=f"--objective {usual}" if usual else "another model",
        )
    return kind(shape, config)
