"""DINO (arXiv 2104.14294): a student learns to give its crops of an image the output that its teacher, a moving
average of it, gives the other large crop. No labels; evaluated by nearest neighbours."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.average import MovingAverage
from trainwright.train.data.image_batch import ImageBatch
from trainwright.train.data.image_classes import ImageClasses, classes
from trainwright.train.data.image_samples import ImageSamples
from trainwright.train.data.loader import Options
from trainwright.train.data.multicrop import PER_CROP, CropOptions, centre_crop, crop
from trainwright.train.models.decoder import Linear
from trainwright.train.models.initialise import normal
from trainwright.train.models.shape import ModelShape, attention_parameters, mlp_parameters
from trainwright.train.models.vision import VisionTransformer, patches_of, with_positions
from trainwright.train.neighbours import nearest_neighbour_accuracy
from trainwright.train.objectives.base import Objective
from trainwright.train.parallel.layout import Layout

if TYPE_CHECKING:
    from trainwright.train.config import TrainConfig
    from trainwright.train.data.loader import Loader
    from trainwright.train.engine import Engine

STUDENT_TEMPERATURE, FIRST_TEACHER_TEMPERATURE, TEMPERATURE_WARMUP = 0.1, 0.04, 0.1
CENTRE_MOMENTUM = 0.9
GLOBALS = 2
STUDENT, TEACHER, LAST = "student.", "teacher.", "student.head.last.weight"


@dataclass(frozen=True)
class DinoInputs:
    centre: Tensor  # [prototypes]
    temperature: Tensor  # the teacher's
    counts: Tensor  # [b], which images count
    scale: Tensor
    sums: Tensor | None = None  # [prototypes + 1], to which the teacher's outputs and their number are added
    keep: Tensor | None = None  # [layers, 2, crops x b], stochastic depth of the student
    features: bool = False  # give the teacher's features of the images instead of the loss


class DinoHead(nn.Module):
    """Three layers to a bottleneck on the unit sphere, then one unit-length row per prototype."""

    def __init__(self, shape: ModelShape, prototypes: int) -> None:
        super().__init__()
        small = shape.hidden < 192
        inner, neck = (128, 64) if small else (2048, 256)
        self.layers = nn.ModuleList([Linear(shape.hidden, inner), Linear(inner, inner), Linear(inner, neck)])
        self.last = Linear(neck, prototypes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.layers
        x = third(F.gelu(second(F.gelu(first(x)))))
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.local(self.last.weight), dim=-1))

    # Tensor parallelism replaces it: parameters are distributed tensors then.
    local: Callable[[Tensor], Tensor] = staticmethod(lambda param: param)


class Branch(nn.Module):
    """A backbone and its head: the student, or the teacher."""

    def __init__(self, shape: ModelShape, prototypes: int) -> None:
        super().__init__()
        self.backbone = VisionTransformer(shape, classes=False)
        self.head = DinoHead(shape, prototypes)

    def forward(self, crops: Sequence[Tensor], keep: Tensor | None = None) -> Tensor:
        return self.head(torch.cat(self.backbone.features(crops, keep)))  # type: ignore[no-any-return]


class StudentAndTeacher(nn.Module):
    def __init__(self, shape: ModelShape, prototypes: int) -> None:
        super().__init__()
        self.shape, self.first, self.last = shape, True, True
        self.student, self.teacher = Branch(shape, prototypes), Branch(shape, prototypes)
        self.teacher.requires_grad_(False)
        self.loss = dino_loss

    def layers(self) -> list[Any]:
        return [*self.student.backbone.layers(), *self.teacher.backbone.layers()]

    def forward(self, crops: Sequence[Tensor], inputs: DinoInputs) -> Tensor:
        """The large crops of all images (first crop of each, then second) and the small ones, to the loss."""
        if inputs.features:
            return self.teacher.backbone.features(crops)[0]
        with torch.no_grad():
            goal = self.teacher(crops[:1])
            if inputs.sums is not None:
                inputs.sums[:-1] += goal.sum(0, dtype=torch.float32)
                inputs.sums[-1] += len(goal)
        images = len(inputs.counts)
        output = self.student(crops, inputs.keep)
        student, teacher = output.view(-1, images, output.shape[-1]), goal.view(GLOBALS, images, -1)
        loss = self.loss(student, teacher, inputs.centre, inputs.temperature)
        return (loss * inputs.counts).sum() * inputs.scale


def dino_loss(student: Tensor, teacher: Tensor, centre: Tensor, temperature: Tensor) -> Tensor:
    """The loss of each image [b]: cross-entropy between every large crop of the teacher [2, b, k] and every other crop
    of the student [crops, b, k], averaged over the pairs. Without the log-probabilities: -q.log p = lse(z) - q.z."""
    goal = ((teacher.float() - centre) / temperature).softmax(-1)
    scores = student.float() / STUDENT_TEMPERATURE
    normaliser = scores.logsumexp(-1)
    agreement = (goal.flip(0) * scores[:GLOBALS]).sum((0, 2)) + (goal.sum(0) * scores[GLOBALS:]).sum((0, 2))
    total = normaliser[:GLOBALS].sum(0) + GLOBALS * normaliser[GLOBALS:].sum(0) - agreement
    return total / (GLOBALS * len(student) - GLOBALS)


def compile_outside_blocks(model: Any, heads: bool) -> None:
    model.loss = torch.compile(dino_loss, dynamic=False)
    for branch in (model.student, model.teacher):
        branch.backbone.patches = torch.compile(patches_of, dynamic=False)
        branch.backbone.assembled = torch.compile(with_positions, dynamic=False)
        if heads:
            branch.head.forward = torch.compile(branch.head.forward, dynamic=False)  # type: ignore[method-assign]


class Dino(Objective):
    kinds = ("vision",)
    counts_samples = True
    samples_are = "images"
    replayable = True

    def __init__(self, shape: ModelShape, settings: TrainConfig | None = None) -> None:
        from trainwright.train.config import TrainConfig

        super().__init__(shape, settings or TrainConfig())
        self.options: TrainConfig = self.settings  # type: ignore[assignment]
        self.prototypes = self.options.prototypes or (1024 if shape.hidden < 192 else 65536)
        small = max(shape.patch, round(shape.image * 96 / 224 / shape.patch) * shape.patch)
        one = CropOptions(size=shape.image)
        two = CropOptions(size=shape.image, blur=0.1, solarize=0.2)
        local = CropOptions(size=small, scale=(0.05, 0.4), blur=0.5)
        self.crops = (one, two, *[local] * self.options.local_crops)
        self.training: ImageSamples | None = None
        self.known: ImageClasses | None = None  # for neighbours: nothing that is learned depends on classes
        self.notes: list[str] = []

    # Data.

    def open_data(self, names: Sequence[str], options: Options, cache: Path | None, held: bool) -> Any:
        numbers = PER_CROP * len(self.crops) + (self.depth_numbers if self.options.drop_path else 0)
        samples = ImageSamples(names, self.shape.channels, self.shape.image, numbers, options, held)
        known = self.known or ImageClasses.named(samples.sources)
        new = known.unknown(ImageClasses.named(samples.sources).names)
        if new:
            self.notes.append(f"note: {classes(new)} in the evaluation data only: knn counts such images as wrong")
        self.known, self.training = replace(known, names=(*known.names, *new)), self.training or samples
        samples.number(self.known)
        return samples

    def description(self) -> list[str]:
        return self.notes

    @property
    def depth_numbers(self) -> int:
        """Random numbers of a sample for stochastic depth: for attention and MLP of each layer, for each crop."""
        return 2 * self.shape.layers * len(self.crops)

    @property
    def tokens_per_sample(self) -> int:
        return sum(1 + (kind.size // self.shape.patch) ** 2 for kind in self.crops)

    # Loss.

    def build(self, layers: Iterable[int] | None, first: bool, last: bool) -> nn.Module:
        return StudentAndTeacher(self.shape, self.prototypes)

    def initial_value(self, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        """The teacher starts as the student."""
        return normal(name.removeprefix(TEACHER).removeprefix(STUDENT), size, 0.02, seed, device)

    def count(self, batch: ImageBatch) -> Tensor:
        return batch.counts.sum()

    def inputs(self, batch: ImageBatch, layout: Layout, scale: Tensor) -> tuple[list[Tensor], DinoInputs]:
        sums = self.sums if torch.is_grad_enabled() else None
        training = self.options.drop_path and torch.is_grad_enabled()
        keep = self.kept(batch.dice[:, PER_CROP * len(self.crops) :]) if training else None
        return self.cropped(batch), DinoInputs(self.centre, self.heat, batch.counts, scale, sums, keep)

    def kept(self, dice: Tensor) -> Tensor:
        """Stochastic depth (arXiv 1603.09382): the chance to be left out rises linearly with the layer; what is kept is
        scaled up in turn."""
        rates = torch.linspace(0, self.options.drop_path, self.shape.layers, device=dice.device)[:, None, None]
        numbers = dice.view(len(dice), len(self.crops), self.shape.layers, 2).permute(2, 3, 1, 0).flatten(2)
        return (numbers >= rates) / (1 - rates)

    def cropped(self, batch: ImageBatch) -> list[Tensor]:
        dice = batch.dice[:, : PER_CROP * len(self.crops)].view(len(batch.dice), -1, PER_CROP).unbind(1)
        images = batch.images.to(self.dtype)
        parts = [self.crop(images, d, kind, self.dtype) for d, kind in zip(dice, self.crops, strict=True)]
        groups = [torch.cat(parts[:GLOBALS])]
        return [*groups, torch.cat(parts[GLOBALS:])] if len(parts) > GLOBALS else groups

    # State.

    def attach(self, engine: Engine) -> None:
        self.optimizer = engine.optimizer
        # The first steps leave it as it is: its moments, and their bias correction, begin after them.
        steps = range(self.options.steps + 1)
        self.optimizer.states[LAST].begin = bisect_left(steps, self.options.frozen_head, key=self.progress_at)
        pairs = {name: STUDENT + name.removeprefix(TEACHER) for name in engine.frozen}
        self.teacher = MovingAverage(engine.frozen, engine.optimizer, pairs)
        self.centre = torch.zeros(self.prototypes, device=engine.device)
        self.sums = torch.zeros(self.prototypes + 1, device=engine.device)
        self.heat = torch.full((), self.temperature(), device=engine.device)
        self.dtype = torch.float32 if engine.options.precision == "fp32" else torch.bfloat16
        self.crop = torch.compile(crop, dynamic=False) if engine.options.compile else crop
        if engine.options.compile:
            for model in engine.runner.stages:
                if model.loss is dino_loss:
                    compile_outside_blocks(model, heads=engine.plan.tp == 1)

    def base_name(self, name: str) -> str:
        """Weights hold one backbone, with which student and teacher begin; their heads begin anew."""
        branch = name.removeprefix(TEACHER).removeprefix(STUDENT)
        return branch.removeprefix("backbone.") if branch.startswith("backbone.") else ""

    def based(self, engine: Engine) -> None:
        self.attach(engine)

    def begin_step(self, engine: Engine) -> None:
        self.sums.zero_()
        self.heat.fill_(self.temperature())
        if self.options.final_weight_decay:
            first, last = self.options.weight_decay, self.options.final_weight_decay
            engine.optimizer.set_weight_decay(last + (first - last) * (1 + math.cos(math.pi * self.progress())) / 2)

    def adjust(self, grads: dict[str, Tensor], engine: Engine) -> None:
        if self.progress() < self.options.frozen_head:
            del grads[LAST]

    def after_update(self, engine: Engine) -> None:
        """The teacher follows the student; its centre follows its outputs."""
        rise = (1 - math.cos(math.pi * self.progress())) / 2
        self.teacher.update(self.options.teacher_momentum + (1 - self.options.teacher_momentum) * rise)
        if engine.plan.world > 1:
            dist.all_reduce(self.sums)
        mean = self.sums[:-1] / self.sums[-1]
        self.centre.lerp_(torch.where(mean.isfinite(), mean, self.centre), 1 - CENTRE_MOMENTUM)

    def state(self) -> dict[str, Tensor]:
        return {**self.teacher.state(), "centre": self.centre}

    def loaded(self) -> None:
        self.teacher.show()

    def progress(self) -> float:
        """The share of the steps that is done."""
        return self.progress_at(self.optimizer.steps)

    def progress_at(self, step: int) -> float:
        return min(1.0, step / self.options.steps)

    def temperature(self) -> float:
        share = min(1.0, self.progress() / TEMPERATURE_WARMUP)
        return FIRST_TEACHER_TEMPERATURE + (self.options.teacher_temperature - FIRST_TEACHER_TEMPERATURE) * share

    # Report.

    def flops_per_token(self) -> float:
        """Forward and backward of the student, forward of the teacher, their attention and their heads."""
        block = attention_parameters(self.shape) + mlp_parameters(self.shape)
        tokens = [1 + (kind.size // self.shape.patch) ** 2 for kind in self.crops]
        head = 16.7e6 if self.prototypes == 65536 else 256.0 * self.prototypes
        total = head * (6 * len(tokens) + 2 * GLOBALS)
        for number, count in enumerate(tokens):
            passes = 8 if number < GLOBALS else 6
            total += passes * count * self.shape.layers * (block + 2 * self.shape.hidden * count)
        return total / sum(tokens)

    def scores(self, engine: Engine, loader: Loader, eval_loss: float) -> dict[str, float]:
        """Accuracy of nearest neighbours among training images, by the teacher's features."""
        assert self.training is not None

        def features(images: Tensor) -> Tensor:
            pixels = centre_crop(images.to(engine.device), self.shape.image, self.dtype)
            none = DinoInputs(self.centre, self.heat, pixels[:0], self.centre, features=True)
            return engine.runner.stages[0]([pixels], none)  # type: ignore[no-any-return]

        return {"knn": nearest_neighbour_accuracy(features, self.training, loader.samples)}  # type: ignore[arg-type]


OBJECTIVE = Dino
