"""Learn the class of an image: supervised training of vision transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainwright.errors import UserError, listed
from trainwright.train.data.image_batch import ImageBatch
from trainwright.train.data.image_classes import SHOWN, ImageClasses
from trainwright.train.data.image_samples import ImageSamples
from trainwright.train.data.loader import Options
from trainwright.train.data.multicrop import PER_CROP, CropOptions, centre_crop, crop
from trainwright.train.flops import flops_per_token
from trainwright.train.models.shape import ModelShape
from trainwright.train.models.vision import ClassifierInputs
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.config import TrainConfig
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine

BATCH, MOST = 64, 4096  # images per forward pass, and in all, when accuracy is measured


class Classification(Objective):
    kinds = ("vision",)
    counts_samples = True
    samples_are = "images"
    replayable = True

    def __init__(self, shape: ModelShape, settings: TrainConfig | None = None) -> None:
        super().__init__(shape, settings)
        self.opened: list[ImageSamples] = []

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Any:
        samples = ImageSamples(names, self.shape.channels, self.shape.image, PER_CROP, options, held)
        self.classes = self.classes or ImageClasses.of(samples.sources)
        samples.number(self.classes)
        self.opened.append(samples)
        classes = 1 + max(number for numbers in samples.table for number in numbers.values())
        if classes > self.shape.vocab:
            what = f"the images have {classes} classes, the model {self.shape.vocab}"
            where = ", ".join(source.where for source in samples.sources)
            raise UserError(what, where=where, fix=more_classes(self.shape, classes))
        return samples

    def use_classes(self, names: Sequence[str]) -> None:
        assert self.classes is not None
        self.classes = replace(self.classes, names=tuple(names))
        for samples in self.opened:
            samples.number(self.classes)

    def description(self) -> list[str]:
        names = self.classes.names if self.classes is not None else ()
        return [f"classes: {listed([f'{number} {name}' for number, name in enumerate(names)], SHOWN)}"] if names else []

    @property
    def tokens_per_sample(self) -> int:
        return self.shape.context

    def flops_per_token(self) -> float:
        return flops_per_token(self.shape, self.shape.context, self.lora_rank)

    def count(self, batch: ImageBatch) -> Tensor:
        return batch.counts.sum()

    def inputs(self, batch: ImageBatch, layout: Layout, scale: Tensor) -> tuple[Tensor, ClassifierInputs]:
        if torch.is_grad_enabled():
            kind = CropOptions(size=self.shape.image, scale=(0.08, 1.0), jitter=0, grey=0, blur=0)
            pixels = self.crop(batch.images, batch.dice, kind, self.dtype)
        else:
            pixels = centre_crop(batch.images, self.shape.image, self.dtype)
        return pixels, ClassifierInputs(batch.labels, scale)

    def attach(self, engine: Engine) -> None:
        self.dtype = torch.float32 if engine.options.precision == "fp32" else torch.bfloat16
        self.crop = torch.compile(crop, dynamic=False) if engine.options.compile else crop

    @torch.no_grad()
    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        """Top-1 accuracy on the evaluation data."""
        samples: Any = loader.samples
        total, right = min(MOST, samples.epoch_samples), 0
        for begin in range(0, total, BATCH):
            batch = samples.batch([samples.locate(n) for n in range(begin, min(begin + BATCH, total))])
            pixels = centre_crop(batch.images.to(engine.device), self.shape.image, self.dtype)
            logits = engine.runner.stages[0](pixels, ClassifierInputs())
            right += int((logits.argmax(-1).cpu() == batch.labels).sum())
        return {"accuracy": right / total}


def more_classes(shape: ModelShape, classes: int) -> str:
    """How a model's file gets that many classes."""
    if not shape.source.endswith("config.json"):
        return f'a model file with "vocab": {classes}'
    head = '"architectures": ["ViTForImageClassification"]'
    return f'--model with a copy of {shape.source} that has {head} and {classes} entries in "id2label"'


OBJECTIVE = Classification
