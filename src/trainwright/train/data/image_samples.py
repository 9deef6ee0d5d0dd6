"""Images as samples, with the interface of prepared tokens: the n-th sample of the job is known for every n, so that
order and resume are exact. Sources are folders and tar files of images (`data/images.py`), `.npy` arrays with any
number of channels, and a built-in set of textures."""

from __future__ import annotations

import ast
import hashlib
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.image_batch import ImageBatch
from trainwright.train.data.image_classes import ImageClasses
from trainwright.train.data.image_decoders import Decoder, decoder
from trainwright.train.data.images import list_images
from trainwright.train.data.loader import Options, SampleId
from trainwright.train.data.mixture import Mixture, Part
from trainwright.train.data.named import parse_mixture
from trainwright.train.data.shuffle import Permutation, mix, uniform
from trainwright.train.data.special_tokens import SampleTokens

BUILT_IN = "builtin:textures"
ARRAYS = {"|u1": torch.uint8, "<u2": torch.int16}  # dtypes of .npy files; 16 bits are shifted down to 8


class ImageSource(Protocol):
    """Square uint8 images with labels."""

    where: str
    labels: list[int]  # in numbers of its own
    names: dict[int, str]  # of the classes, by label
    numbered: bool  # labels are numbers that the data gives, without names
    fingerprint: str
    in_memory: bool  # nothing to decode: threads would only be in each other's way

    def read(self, index: int, out: Tensor) -> None:
        """Write image `index` into `out`, uint8 [channels, side, side]."""


class Textures:
    """Ten classes of textures, made in memory: present on any machine, and a class can be told from its texture."""

    where, count, classes, in_memory, numbered = BUILT_IN, 4096, 10, True, False

    def __init__(self, channels: int, side: int) -> None:
        self.labels = [i % self.classes for i in range(self.count)]
        self.names = {number: f"texture{number}" for number in range(self.classes)}
        self.fingerprint = f"textures-1-{channels}-{side}"
        ramp = torch.arange(2 * side).float()
        self.canvas = torch.stack([self._texture(number, ramp, channels) for number in range(self.classes)])

    def _texture(self, number: int, ramp: Tensor, channels: int) -> Tensor:
        generator = torch.Generator().manual_seed(number)
        angle, frequency = 3.14159 * number / self.classes, 6.2832 / (4 + 2 * (number % 5))
        direction = torch.tensor([angle]).sin(), torch.tensor([angle]).cos()
        wave = (frequency * (direction[0] * ramp[:, None] + direction[1] * ramp[None, :])).sin()
        tint = torch.rand(channels, 1, 1, generator=generator)
        noise = torch.rand(channels, len(ramp), len(ramp), generator=generator)
        return ((0.35 * (1 + wave) * (0.4 + 0.6 * tint) + 0.3 * noise) * 255).clamp(0, 255).to(torch.uint8)

    def read(self, index: int, out: Tensor) -> None:
        side = out.shape[-1]
        y, x = mix(index, 1) % side, mix(index, 2) % side
        out.copy_(self.canvas[self.labels[index], :, y : y + side, x : x + side])


class Pictures:
    """Encoded images in folders or tar files, decoded to their largest square."""

    in_memory = False

    def __init__(self, name: str, channels: int) -> None:
        if channels != 3:
            raise UserError(f"encoded images have 3 channels, the model {channels}", where=name, fix=".npy arrays")
        self.where = name
        self.entries, names = list_images(name)
        self.labels = [entry.label for entry in self.entries]
        self.numbered = not names
        self.names = dict(enumerate(names)) or {label: str(label) for label in sorted(set(self.labels))}
        words = repr([(os.path.basename(e.path), e.offset, e.size, e.label) for e in self.entries])
        self.fingerprint = hashlib.sha256(words.encode()).hexdigest()[:16]
        self.decode: Decoder = decoder("")

    def read(self, index: int, out: Tensor) -> None:
        entry = self.entries[index]
        picture = torch.empty(out.shape[1], out.shape[2], 3, dtype=torch.uint8)
        try:
            with open(entry.path, "rb") as handle:
                handle.seek(entry.offset)
                data = handle.read(entry.size)
            self.decode(data, _largest_square, picture.numpy())
        except (OSError, ValueError) as error:
            where = f"{entry.path} at byte {entry.offset}"
            raise UserError(f"cannot decode the image: {error}", where=where, fix="remove or replace it") from error
        out.copy_(picture.permute(2, 0, 1))


def _largest_square(width: int, height: int) -> tuple[int, int, int, int, bool]:
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side, False


class Arrays:
    """`.npy` files of [channels, height, width], a class per folder: microscopy has more channels than a photograph."""

    in_memory, numbered = False, False

    def __init__(self, name: str, channels: int) -> None:
        self.where, self.channels = name, channels
        self.paths = sorted(Path(name).rglob("*.npy"))
        names = sorted({path.parent.name for path in self.paths})
        self.names = dict(enumerate(names))
        number = {name: at for at, name in enumerate(names)}
        self.labels = [number[path.parent.name] for path in self.paths]
        words = repr([(str(p.relative_to(name)), p.stat().st_size) for p in self.paths])
        self.fingerprint = hashlib.sha256(words.encode()).hexdigest()[:16]

    def read(self, index: int, out: Tensor) -> None:
        image = read_npy(self.paths[index])
        if image.ndim != 3 or image.shape[0] != self.channels:
            raise UserError(
                f"the array is {tuple(image.shape)}, the model needs [{self.channels}, height, width]",
                where=str(self.paths[index]), fix=f'a model file with "channels": {image.shape[0]}',
            )  # fmt: skip
        square = min(image.shape[1:])
        top, left = (image.shape[1] - square) // 2, (image.shape[2] - square) // 2
        cut = image[None, :, top : top + square, left : left + square].float()
        out.copy_(F.interpolate(cut, size=out.shape[1:], mode="bilinear", antialias=True)[0].round_().clamp_(0, 255))


def read_npy(path: Path) -> Tensor:
    """A NumPy array file of 8- or 16-bit numbers, without NumPy."""
    data = path.read_bytes()
    try:
        wide = data[6] > 1
        length = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
        begin = 8 + (4 if wide else 2)
        header = ast.literal_eval(data[begin : begin + length].decode("latin-1"))
        dtype, order, size = header["descr"], header["fortran_order"], header["shape"]
        values = torch.frombuffer(bytearray(data[begin + length :]), dtype=ARRAYS[dtype]).view(size)
    except (KeyError, ValueError, IndexError, SyntaxError, struct.error, RuntimeError) as error:
        raise UserError(f"not an array of uint8 or uint16 ({error})", where=str(path), fix="numpy.save") from error
    if order:
        raise UserError("the array is in Fortran order", where=str(path), fix="numpy.ascontiguousarray before saving")
    return (values.int() & 0xFFFF) >> 8 if dtype == "<u2" else values


def open_images(name: str, channels: int, side: int) -> ImageSource:
    if name == BUILT_IN:
        return Textures(channels, side)
    if not Path(name).exists():
        raise UserError("no such folder of images", where=name, fix=f"a folder or tar file, or {BUILT_IN}")
    if Path(name).is_dir() and next(Path(name).rglob("*.npy"), None):
        return Arrays(name, channels)
    return Pictures(name, channels)


def decoded_side(image: int) -> int:
    """The side of a decoded image, of which a model of this size sees a crop: 256 for 224."""
    return image * 8 // 7


class ImageSamples:
    """All samples of one or several sources, in the order the job sees them. `number` says what their labels are."""

    def __init__(self, names: Sequence[str], channels: int, image: int, numbers: int, options: Options, held: bool):
        paths, weights = parse_mixture(names)
        self.channels, self.side, self.numbers, self.options = channels, decoded_side(image), numbers, options
        self.sources = [open_images(path, channels, self.side) for path in paths]
        self.mixture = Mixture(weights)
        totals = [len(source.labels) for source in self.sources]
        kept = [round(total * options.holdout) for total in totals]
        self.held = held
        # A class per folder lies together: what is held out is spread over all of it.
        self.spread = [Permutation(total, "holdout", options.seed) for total in totals]
        self.first = [total - k if held else 0 for total, k in zip(totals, kept, strict=True)]
        self.counts = [k if held else total - k for total, k in zip(totals, kept, strict=True)]
        for source, total, count in zip(self.sources, totals, self.counts, strict=True):
            if count < 1:
                what = f"holding out {options.holdout:.2%} of {total:,} images leaves none"
                raise UserError(what, where=source.where)
        self.orders: dict[tuple[int, int], Permutation] = {}
        self.pool = ThreadPoolExecutor(max(1, min(16, len(os.sched_getaffinity(0)) // 2)))
        self.table: list[dict[int, int]] = []

    def number(self, classes: ImageClasses) -> None:
        """Give the images the numbers that their classes have there."""
        self.table = [classes.numbers(source) for source in self.sources]

    @property
    def epoch_samples(self) -> int:
        """Samples after which the first source to run out has been seen once."""
        return self.mixture.epoch(self.counts)

    @property
    def parts(self) -> list[Part]:
        """The sources and how many images of each are used."""
        return self.mixture.parts([source.where for source in self.sources], self.counts)

    @property
    def identity(self) -> list[list[str | int]]:
        return [[s.fingerprint, k] for s, k in zip(self.sources, self.mixture.shares, strict=True)]

    tokenizer_id = None

    def tokenizer(self) -> tuple[None, None]:
        return None, None

    def tokenizer_settings(self) -> dict[str, bytes]:
        return {}

    def added_tokens(self) -> SampleTokens:
        return SampleTokens()

    def locate(self, n: int) -> SampleId:
        source, index = self.mixture.locate(n)
        epoch, place = divmod(index, self.counts[source])
        if self.options.shuffle:
            place = self.order(source, epoch)(place)
        return SampleId(source, epoch, self.spread[source](self.first[source] + place))

    def order(self, source: int, epoch: int) -> Permutation:
        key = (source, epoch)
        if key not in self.orders:
            self.orders = {(s, e): order for (s, e), order in self.orders.items() if s != source or e >= epoch - 1}
            self.orders[key] = Permutation(self.counts[source], self.options.seed, source, epoch)
        return self.orders[key]

    def batch(self, ids: Sequence[SampleId], pinned: bool = False) -> ImageBatch:
        images = torch.empty(len(ids), self.channels, self.side, self.side, dtype=torch.uint8, pin_memory=pinned)

        def read(row: int) -> None:
            self.sources[ids[row].source].read(ids[row].sample, images[row])

        if all(source.in_memory for source in self.sources):
            for row in range(len(ids)):
                read(row)
        else:
            list(self.pool.map(read, range(len(ids))))
        dice = uniform([mix(which.sample, mix(which.epoch, self._seed(which.source))) for which in ids], self.numbers)
        return ImageBatch(images, torch.tensor([self._label(which) for which in ids]), dice)

    def _label(self, which: SampleId) -> int:
        return self.table[which.source][self.sources[which.source].labels[which.sample]]

    def _seed(self, source: int) -> int:
        return mix(source, self.options.seed) if source else self.options.seed

    def grouped_batch(self, ids: Sequence[SampleId]) -> ImageBatch:
        """Written where a GPU copies it from: fresh memory and a second copy take longer than the images themselves."""
        return self.batch(ids, pinned=torch.cuda.is_available())
