"""What every objective answers. The defaults are those of a language model on prepared tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from trainwright.train.data.batch import IGNORED
from trainwright.train.data.image_classes import ImageClasses
from trainwright.train.data.loader import Options, Samples
from trainwright.train.data.named import open_samples
from trainwright.train.flops import flops_per_token, trained_shape
from trainwright.train.models import model_class
from trainwright.train.models.initialise import initial_value
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.config import TrainConfig
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine


class Objective(ABC):
    """How a batch becomes a loss. `settings` is the run's configuration, or None for a bare engine."""

    kinds: ClassVar[tuple[str, ...]] = ()  # the kinds of model it trains
    samples_are: ClassVar[str] = "samples"  # what the log calls them
    counts_samples: ClassVar[bool] = False  # the speed on the console counts samples (images), not tokens
    # A step is the same kernels for every batch, and needs nothing of the host: a GPU may replay a recording of it.
    replayable: ClassVar[bool] = False

    def __init__(self, shape: ModelShape, settings: TrainConfig | None = None) -> None:
        self.shape, self.settings = shape, settings
        self.classes: ImageClasses | None = None  # what the outputs stand for, where those are classes

    # The data it needs.

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Samples:
        """The samples of these data sets, in the order the job sees them."""
        return open_samples(names, options, cache, self.shape.vocab, held)

    def use_classes(self, names: Sequence[str]) -> None:
        """Number the classes of all data as weights do that are loaded."""

    @property
    def tokens_per_sample(self) -> int:
        """Tokens that the model computes per sample, for speed."""
        assert self.settings is not None
        return self.settings.sequence

    # How a batch becomes a loss.

    def build(self, layers: Iterable[int] | None, first: bool, last: bool) -> nn.Module:
        """The module of one pipeline stage, on the current device: called with (x, inputs) it returns the loss."""
        return model_class(self.shape)(self.shape, layers, first, last)  # type: ignore[no-any-return]

    def initial_value(self, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        """The initial fp32 value of one parameter."""
        own = getattr(model_class(self.shape), "initial_value", initial_value)
        return own(self.shape, name, size, seed, device)  # type: ignore[no-any-return]

    def count(self, batch: Any) -> Tensor:
        """How many terms of a batch the mean loss is over."""
        return (batch.targets != IGNORED).sum()

    @abstractmethod
    def inputs(self, batch: Any, layout: Layout, scale: Tensor) -> tuple[Any, Any]:
        """The two arguments of the module for a batch on the device; the loss is to be multiplied by `scale`."""

    # State beside the model, and what happens around an update.

    def attach(self, engine: Engine) -> None:
        """Called once, when the engine is built."""

    def base_name(self, name: str) -> str:
        """The name that a parameter has in the model alone, which is what `--base` holds; empty for one that only this
        objective has, which keeps its initial value."""
        return name

    def based(self, engine: Engine) -> None:
        """Called after the weights of `--base` were loaded."""

    def begin_step(self, engine: Engine) -> None:
        """Called before the first micro-batch of a step."""

    def adjust(self, grads: dict[str, Tensor], engine: Engine) -> None:
        """Called with the whole gradient before it is clipped. A parameter whose gradient is taken out of it stays as
        it is, without decay, and does not count in the norm."""

    def after_update(self, engine: Engine) -> None:
        """Called after each update of the weights."""

    def state(self) -> dict[str, Tensor]:
        """Tensors of the objective that belong into a checkpoint; they are loaded in place."""
        return {}

    def loaded(self) -> None:
        """Called after a checkpoint was loaded."""

    # What it reports.

    def description(self) -> list[str]:
        """Lines for the log, once data and weights are loaded."""
        return []

    def flops_per_token(self) -> float:
        """Model FLOPs per token, forward and backward."""
        return flops_per_token(trained_shape(self.shape), self.tokens_per_sample, self.lora_rank)

    @property
    def lora_rank(self) -> int:
        """Of the adapters that are trained instead of the model; 0: the model itself is."""
        return self.settings.lora_rank if self.settings else 0

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        """Further results of an evaluation, by name."""
        return {}
