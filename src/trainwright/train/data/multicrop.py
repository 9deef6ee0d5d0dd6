"""Random crops and colours of images, for a whole batch on its device. Cropping, resizing, mirroring and blurring are
linear in rows and in columns, so each crop is two matrix products per image; brightness, contrast, saturation and hue
are linear in the colours, so together they are one small matrix per image. All random numbers come with the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
OTHER_MEAN, OTHER_SPREAD = 0.5, 0.25  # of images that are not three colours
GREY = (0.299, 0.587, 0.114)
PER_CROP = 16  # random numbers that a crop uses


@dataclass(frozen=True, slots=True)
class CropOptions:
    """One kind of crop; the defaults are DINO's first global crop."""

    size: int = 224
    scale: tuple[float, float] = (0.4, 1.0)  # of the image's area
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    jitter: float = 0.8  # probability of changed colours
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    grey: float = 0.2  # probability
    blur: float = 1.0  # probability
    solarize: float = 0.0  # probability


def crop(images: Tensor, dice: Tensor, options: CropOptions, dtype: torch.dtype) -> Tensor:
    """One crop of each uint8 image [b, c, s, s] by its random numbers [b, 16]: [b, c, size, size], normalised."""
    x = resized(images, *windows(dice, images.shape[-1], options), options.size, dice[:, 4] < 0.5, dtype)
    x = recoloured(x / 255, dice[:, 7:14], options)
    solar = (dice[:, 14] < options.solarize).view(-1, 1, 1, 1)
    x = torch.where(solar & (x >= 0.5), 1 - x, x)
    return normalised(x)


def centre_crop(images: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """The middle of each image, normalised: what is evaluated."""
    side = images.shape[-1]
    begin = (side - min(side, size)) // 2
    return normalised(images[..., begin : begin + size, begin : begin + size].to(dtype) / 255)


def normalised(x: Tensor) -> Tensor:
    if x.shape[1] != len(MEAN):
        return (x - OTHER_MEAN) / OTHER_SPREAD
    mean, spread = (torch.tensor(v, device=x.device, dtype=x.dtype).view(1, -1, 1, 1) for v in (MEAN, SPREAD))
    return (x - mean) / spread


def windows(dice: Tensor, side: int, options: CropOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Top left corner and size of each crop in pixels, [b, 2] each (y, x), and the blur's spread in pixels, [b]."""
    area = (options.scale[0] + (options.scale[1] - options.scale[0]) * dice[:, 0]) * side * side
    low, high = (math.log(value) for value in options.ratio)
    ratio = (low + (high - low) * dice[:, 1]).exp()
    size = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], 1).clamp(1, side)
    corner = (side - size) * dice[:, 2:4]
    spread = torch.where(dice[:, 5] < options.blur, 0.1 + 1.9 * dice[:, 6], 0.0)
    return corner, size, spread


def resized(
    images: Tensor, corner: Tensor, size: Tensor, spread: Tensor, out: int, mirror: Tensor, dtype: torch.dtype
) -> Tensor:
    """The windows, resized to out x out (bilinear with antialiasing), mirrored where told, and blurred."""
    rows = weights(corner[:, 0], size[:, 0], images.shape[-1], out, spread)
    columns = weights(corner[:, 1], size[:, 1], images.shape[-1], out, spread)
    columns = torch.where(mirror[:, None, None], columns.flip(1), columns)
    narrow = images.to(dtype) @ columns.to(dtype).transpose(1, 2)[:, None]
    return rows.to(dtype)[:, None] @ narrow


def weights(begin: Tensor, length: Tensor, side: int, out: int, spread: Tensor) -> Tensor:
    """[b, out, side]: what each pixel adds to each pixel of the result, along one axis."""
    step = (length / out)[:, None, None]
    centres = begin[:, None, None] + step * (torch.arange(out, device=begin.device) + 0.5)[None, :, None]
    pixels = (torch.arange(side, device=begin.device) + 0.5)[None, None, :]
    kernel = (1 - (centres - pixels).abs() / step.clamp(min=1.0)).clamp(min=0)
    kernel = kernel / kernel.sum(-1, keepdim=True).clamp(min=1e-6)
    index = torch.arange(out, device=begin.device)
    distance = (index[:, None] - index[None, :]).float()
    blur = (-0.5 * (distance[None] / spread.clamp(min=1e-2)[:, None, None]) ** 2).exp()
    return (blur / blur.sum(-1, keepdim=True)) @ kernel


def recoloured(x: Tensor, dice: Tensor, options: CropOptions) -> Tensor:
    """Brightness, contrast, saturation and hue (or only the first two where the channels are no colours), and grey."""
    on = dice[:, 0] < options.jitter

    def factor(number: int, most: float) -> Tensor:
        return torch.where(on, 1 + most * (2 * dice[:, number] - 1), 1.0)

    bright, contrast = factor(1, options.brightness), factor(2, options.contrast)
    if x.shape[1] != len(GREY):
        means = x.mean((1, 2, 3))
        shift = (1 - contrast) * bright * means
        return (
            x * (bright * contrast)[:, None, None, None].to(x.dtype) + shift[:, None, None, None].to(x.dtype)
        ).clamp(0, 1)
    saturation = torch.where(dice[:, 5] < options.grey, 0.0, factor(3, options.saturation))
    angle = torch.where(on, 2 * math.pi * options.hue * (2 * dice[:, 4] - 1), 0.0)
    grey = torch.tensor(GREY, device=x.device)
    matrix = hue_rotation(angle) @ (saturation[:, None, None] * torch.eye(3, device=x.device)
                                    + (1 - saturation)[:, None, None] * grey.expand(3, 3))  # fmt: skip
    means = (x.mean((2, 3)).float() * grey).sum(1)
    shift = (1 - contrast) * bright * means  # grey itself is kept by saturation and hue
    scaled = (bright * contrast)[:, None, None] * matrix
    # Not a matrix product: of 3 x 3 by 3 x pixels, a GPU's kernel takes longer than all else that is done to a crop.
    mixed = sum(scaled[:, :, n, None, None] * x[:, n, None] for n in range(len(GREY)))
    return (mixed + shift[:, None, None, None]).clamp(0, 1).to(x.dtype)


def hue_rotation(angle: Tensor) -> Tensor:
    """[b, 3, 3]: a rotation of the colours around the axis of greys."""
    c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
    third = torch.full((3, 3), 1 / 3, device=angle.device)
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], device=angle.device) / math.sqrt(3)
    return c * torch.eye(3, device=angle.device) + s * cross + (1 - c) * third
