"""The vision transformer (arXiv 2010.11929), for any number of channels: plain single-device PyTorch. Images of several
sizes (DINO's crops) run as one row of tokens, so that every product is large; only attention keeps them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.train.data.batch import IGNORED
from trainwright.train.kernels.image_attention import Groups, attend_images
from trainwright.train.models.decoder import Attention, Linear, norm
from trainwright.train.models.encoder import EncoderBlock
from trainwright.train.models.initialise import normal
from trainwright.train.models.rotary import Angles
from trainwright.train.models.shape import ModelShape

STD = 0.02


@dataclass(frozen=True)
class ClassifierInputs:
    """With `targets` the model returns the summed cross-entropy times `scale`, else the logits."""

    targets: Tensor | None = None
    scale: Tensor | None = None


class ImageAttention(Attention):
    """Attention within each image of a row of images."""

    def forward(self, x: Tensor, cos_sin: Angles | None, groups: Groups) -> Tensor:  # type: ignore[override]
        qkv = self.qkv(x).view(x.shape[1], -1, 3, self.width)
        return self.out(attend_images(qkv, groups).flatten(1)[None])  # type: ignore[no-any-return]


class ImageBlock(EncoderBlock):
    """It leaves the sum with what it adds to the next block, whose norm reads the sum: one kernel does both."""

    def forward(  # type: ignore[override]
        self, x: Tensor, added: Tensor, groups: Groups, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the blocks before gave and what the last of them adds; the same for the next block."""
        x = x + added
        attended = self.attention(self.gather_tokens(self.attention_norm(x)), None, groups)
        x = x + (attended if keep is None else attended * keep[0])
        y = self.mlp(self.gather_tokens(self.mlp_norm(x)))
        return x, y if keep is None else y * keep[1]


class VisionTransformer(nn.Module):
    """The whole model; it has no pipeline stages. Without `classes` it ends in the states of the class token."""

    def __init__(
        self,
        shape: ModelShape,
        layers: Iterable[int] | None = None,
        first: bool = True,
        last: bool = True,
        classes: bool = True,
    ) -> None:
        super().__init__()
        self.shape, self.first, self.last = shape, True, True
        self.patch = Linear(shape.channels * shape.patch**2, shape.hidden)
        self.cls = nn.Parameter(torch.empty(1, shape.hidden))
        self.positions = nn.Parameter(torch.empty(shape.context, shape.hidden))
        self.blocks = nn.ModuleDict({str(i): ImageBlock(shape, ImageAttention) for i in range(shape.layers)})
        self.norm = norm(shape)
        self.patches, self.assembled = patches_of, with_positions  # compiled on a GPU
        self.head = Linear(shape.hidden, shape.vocab) if classes and shape.vocab else None

    @staticmethod
    def initial_value(shape: ModelShape, name: str, size: torch.Size, seed: int, device: torch.device) -> Tensor:
        return normal(name, size, STD, seed, device)

    def layers(self) -> list[ImageBlock]:
        return list(self.blocks.values())  # type: ignore[arg-type]

    def forward(self, images: Tensor, inputs: ClassifierInputs) -> Tensor:
        """Images [b, channels, height, width] to logits, or to the loss."""
        assert self.head is not None
        logits = self.head(self.features([images])[0])
        if inputs.targets is None or inputs.scale is None:
            return logits  # type: ignore[no-any-return]
        return F.cross_entropy(logits.float(), inputs.targets, reduction="sum", ignore_index=IGNORED) * inputs.scale

    def features(self, groups: Sequence[Tensor], keep: Tensor | None = None) -> list[Tensor]:
        """The class token's last state of every image, for each group of images of one size. `keep` [layers, 2, images]
        multiplies what attention and MLP of a layer add to an image (stochastic depth)."""
        tokens = [self.embedded(images) for images in groups]
        sizes: Groups = tuple((x.shape[0], x.shape[1]) for x in tokens)
        x = torch.cat([part.flatten(0, 1) for part in tokens])[None]
        by_token = None if keep is None else spread_images(keep, sizes).to(x.dtype)
        added = torch.zeros_like(x)
        for number, block in enumerate(self.layers()):
            x, added = block(x, added, sizes) if by_token is None else block(x, added, sizes, by_token[number])
        states, begin = [], 0
        for images, count in sizes:
            rows = slice(begin, begin + images * count, count)
            states.append(x[0, rows] + added[0, rows])
            begin += images * count
        return list(self.norm(torch.cat(states)).split([images for images, _ in sizes]))

    def embedded(self, images: Tensor) -> Tensor:
        """Class token and patches with their positions, [b, 1 + patches, hidden]."""
        side = self.shape.patch
        x = self.patch(self.patches(images, side).to(self.patch.weight.dtype))
        return self.assembled(
            x, self.local(self.cls), self.positions_for(images.shape[2] // side, images.shape[3] // side)
        )

    def positions_for(self, rows: int, columns: int) -> Tensor:
        """The learned positions, interpolated where the image has another size than the model."""
        table = self.local(self.positions)
        side = round((len(table) - 1) ** 0.5)
        if (rows, columns) == (side, side):
            return table
        grid = interpolation(side, rows, columns, table.device) @ table[1:].float()
        return torch.cat([table[:1], grid.to(table.dtype)])

    # Tensor parallelism replaces it: parameters are distributed tensors then.
    local: Callable[[Tensor], Tensor] = staticmethod(lambda param: param)


def patches_of(images: Tensor, side: int) -> Tensor:
    """Images [b, channels, height, width] to patches [b, patches, channels x side x side]."""
    b, channels, rows, columns = images.shape[0], images.shape[1], images.shape[2] // side, images.shape[3] // side
    parts = images.view(b, channels, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    return parts.reshape(b, rows * columns, -1)


def with_positions(x: Tensor, cls: Tensor, positions: Tensor) -> Tensor:
    """The class token before the patches [b, patches, hidden], and every token's position added."""
    first = (cls + positions[:1]).expand(len(x), 1, -1)
    return torch.cat([first, x + positions[1:]], dim=1)


@lru_cache(maxsize=8)
def interpolation(side: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Bicubic interpolation from side x side to rows x columns as one matrix [rows x columns, side x side]: torch's
    kernels for it are made for large images."""
    every = torch.eye(side * side).view(1, side * side, side, side)
    wide = F.interpolate(every, size=(rows, columns), mode="bicubic", align_corners=False)
    return wide[0].flatten(1).t().contiguous().to(device)


def spread_images(values: Tensor, groups: Groups) -> Tensor:
    """A value per image [..., images], for each of its tokens: [..., tokens, 1]."""
    parts = torch.split(values, [images for images, _ in groups], dim=-1)
    wide = [
        part[..., None].expand(*part.shape, tokens).flatten(-2) for part, (_, tokens) in zip(parts, groups, strict=True)
    ]
    return torch.cat(wide, dim=-1)[..., None]


MODEL = VisionTransformer
