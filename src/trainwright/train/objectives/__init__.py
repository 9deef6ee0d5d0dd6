"""Objectives: how a batch becomes a loss, what data it needs, what it reports. One file per objective; a file here is
an objective by being here. Names are known without torch, so that the control side can check them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
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


@cache
def kinds_of(name: str) -> tuple[str, ...]:
    """The kinds of model an objective trains. Read from its file's text: to import it, torch is needed."""
    text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    match = re.search(r"^    kinds = (\(.*\))$", text, re.MULTILINE)
    assert match is not None, name
    return tuple(ast.literal_eval(match[1]))


def name_for(wanted: str, shape: ModelShape) -> str:
    """The objective that is meant: the named one, else the usual one of that kind of model."""
    name = wanted or USUAL.get(shape.kind, "")
    if name not in names():
        fix = did_you_mean(name, names()) or f"one of {', '.join(names())}"
        raise UserError(f"there is no objective {name!r}", fix=fix)
    if shape.kind not in kinds_of(name):
        usual = USUAL.get(shape.kind)
        raise UserError(
            f"the objective {name!r} trains models of kind {' or '.join(kinds_of(name))}, and {shape.name} is of kind "
            f"{shape.kind}",
            fix=f"objective {usual}" if usual else "another model",
        )
    return name


def objective_for(config: TrainConfig, shape: ModelShape) -> Objective:
    """The objective of a run, with its settings."""
    module = importlib.import_module(f"{__name__}.{name_for(config.objective, shape)}")
    kind: type[Objective] = module.OBJECTIVE
    return kind(shape, config)
