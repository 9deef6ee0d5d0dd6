"""Judges for model families other than decoders: an engine beside an independent implementation on the same data."""

from __future__ import annotations

import torch

from trainwright.train.config import TrainConfig
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models import huggingface, model_class
from trainwright.train.objectives import objective_for
from trainwright.train.optimizer import AdamWOptions
from trainwright.train.parallel.plan import ParallelPlan

LR = 1e-3


def random_model(shape):
    """A model whose every parameter, norms and biases too, is random: a swapped pair must show."""
    model = model_class(shape)(shape)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, param in model.named_parameters():
            start = float("norm" in name and name.endswith("weight"))
            param.copy_(start + 0.1 * torch.randn(param.shape, generator=generator))
    return model


def export(model, folder):
    with torch.no_grad():
        huggingface.write_folder(model.shape, dict(model.named_parameters()).__getitem__, folder)


def engine_of(shape, settings: TrainConfig, plan: str = "", **options) -> Engine:
    adamw = AdamWOptions(betas=(settings.beta1, settings.beta2), weight_decay=settings.weight_decay)
    options = EngineOptions(optimizer=adamw, max_norm=settings.clip, **options)
    return Engine(shape, ParallelPlan.parse(plan), options, "cpu", objective_for(settings, shape))


def export_engine(engine: Engine, folder) -> None:
    huggingface.write_folder(engine.shape, lambda name: engine.optimizer.read(name).detach(), folder)


def peer_curve(model, losses, lr: float = LR, weight_decay: float = 0.1, clip: float = 1.0) -> list[float]:
    """The loss of each step of plain torch training; `losses` are functions of the model, one per step."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
    curve = []
    for loss_of in losses:
        loss = loss_of(model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item())
    return curve
