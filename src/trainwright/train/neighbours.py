"""Evaluation by nearest neighbours: an image has the class that the images with the most similar features vote for."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.train.data.image_samples import ImageSamples

NEIGHBOURS, TEMPERATURE = 20, 0.07  # as in DINO
BANK, QUERIES, BATCH = 10_000, 2_000, 64  # images at most


@torch.no_grad()
def nearest_neighbour_accuracy(
    features: Callable[[Tensor], Tensor], bank: ImageSamples, queries: ImageSamples
) -> float:
    """The share of `queries` that their neighbours in `bank` classify correctly."""
    known, labels = _collected(features, bank, BANK)
    asked, wanted = _collected(features, queries, QUERIES)
    count = min(NEIGHBOURS, len(known))
    near = (asked @ known.t()).topk(count, dim=1)
    votes = torch.zeros(len(asked), int(labels.max()) + 1, device=asked.device)
    votes.scatter_add_(1, labels[near.indices], (near.values / TEMPERATURE).exp())
    return float((votes.argmax(1) == wanted).float().mean())


def _collected(features: Callable[[Tensor], Tensor], samples: ImageSamples, most: int) -> tuple[Tensor, Tensor]:
    """Unit features and labels of the first images of epoch 0."""
    parts, labels = [], []
    total = min(most, samples.epoch_samples)
    for begin in range(0, total, BATCH):
        batch = samples.batch([samples.locate(n) for n in range(begin, min(begin + BATCH, total))])
        parts.append(F.normalize(features(batch.images).float(), dim=1))
        labels.append(batch.labels.to(parts[-1].device))
    return torch.cat(parts), torch.cat(labels)
