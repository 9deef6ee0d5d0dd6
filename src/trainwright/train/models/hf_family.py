"""The description of one Hugging Face model type: its config keys, and how they become fields of a ModelShape. Free of
torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.train.models.shape import ModelShape

Config = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How one model type writes its config."""

    architecture: str
    fields: dict[str, str]  # their key: our field
    features: Config = field(default_factory=dict)  # our fields that every model of this type has
    defaults: Config = field(default_factory=dict)  # what transformers assumes for a key that is left out
    fixed: Config = field(default_factory=dict)  # the only value of a key that the decoder computes
    special: Callable[[Config, str], Config] = lambda config, where: {}  # our fields that follow from several keys
    special_keys: tuple[str, ...] = ()
    write: Callable[[ModelShape], Config] = lambda shape: {}  # their keys that follow from several fields
