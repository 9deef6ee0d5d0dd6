"""Images for training, read straight from folders or tar files and decoded by threads into uint8 batches.

A batch is uint8 in channels-last memory; `normalized` makes floats of it, best on the GPU, where it costs nothing and a
quarter of the bytes crosses the bus. Order and crops depend only on the seed, the epoch and the image's number.
"""

from __future__ import annotations

import os
import random
import tarfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from trainwright.errors import UserError
from trainwright.train.data.image_decoders import Decoder, decoder, random_crop

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MOST_CLASSES = 10**9  # a WebDataset's number from here on is no class
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as every published recipe uses them


Pending = tuple[torch.Tensor, torch.Tensor, list[Future[None]]]  # images, labels, the threads' work on them


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """Where one encoded image lies: a file of its own (offset 0), or a part of a tar file."""

    path: str
    offset: int
    size: int
    label: int


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How batches are made."""

    size: int = 224
    batch: int = 64
    threads: int = 2
    decoder: str = ""  # empty: the fastest that is installed
    shuffle: bool = True
    seed: int = 0
    ahead: int = 2  # batches decoded before they are asked for
    floats: bool = False  # normalised float32 made by the threads, for training on a CPU


def list_images(source: str) -> tuple[list[ImageEntry], list[str]]:
    """The images of a folder (a class per subfolder), a tar file, or a folder of tar files; and the class names,
    none where every image has a number for its class (WebDataset): that is its label."""
    path = Path(source)
    if path.is_file() and path.suffix == ".tar":
        entries = list(_in_tar(path))
    elif path.is_dir():
        tars = sorted(path.glob("*.tar"))
        entries = [entry for tar in tars for entry in _in_tar(tar)] if tars else list(_in_folder(path))
    else:
        raise UserError("no folder and no tar file", where=source, fix="give a folder of images or of tar files")
    if not entries:
        raise UserError("no image here", where=source, fix=f"files that end in {', '.join(SUFFIXES)}")
    if all(isinstance(name, int) for *_, name in entries):
        return [ImageEntry(path, offset, size, int(number)) for path, offset, size, number in entries], []
    names = sorted({str(name) for *_, name in entries})
    number = {name: at for at, name in enumerate(names)}
    return [ImageEntry(path, offset, size, number[str(name)]) for path, offset, size, name in entries], names


def _in_folder(folder: Path) -> Iterator[tuple[str, int, int, str | int]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES:
            yield str(path), 0, path.stat().st_size, path.parent.name


def _in_tar(path: Path) -> Iterator[tuple[str, int, int, str | int]]:
    """Only the headers are read, and classes: the images stay where they are. The class of an image is that in the
    `.cls` file of its sample (WebDataset), else its folder."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for member in tar if member.isfile()]
            _require_end(tar, path)
            classes = {_sample(m.name): _class(tar, m) for m in members if m.name.endswith(".cls")}
    except (tarfile.TarError, OSError) as error:
        fix = "copy it again; a compressed one has to be decompressed"
        raise UserError(f"not a whole tar file: {error}", where=str(path), fix=fix) from error
    for member in members:
        if member.name.lower().endswith(SUFFIXES):
            number, folder = classes.get(_sample(member.name)), os.path.basename(os.path.dirname(member.name))
            yield str(path), member.offset_data, member.size, folder if number is None else number


def _require_end(tar: tarfile.TarFile, path: Path) -> None:
    """Raise where reading stopped at a damaged header, which `tarfile` takes for the end: the rest would be lost."""
    with path.open("rb") as handle:
        handle.seek(tar.offset)
        if handle.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(f"the header at byte {tar.offset:,} is damaged")


def _sample(name: str) -> str:
    """WebDataset's key of a file: its path up to the first dot of its name."""
    folder, name = os.path.split(name)
    return os.path.join(folder, name.split(".", 1)[0])


def _class(tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    content = tar.extractfile(member)
    assert content is not None
    number = content.read().decode("ascii", "replace").strip()
    where = f"{tar.name!s}: {member.name}"
    if not number.isdecimal():
        raise UserError(f"the class is {number!r}, not a number", where=where)
    if int(number) >= MOST_CLASSES:
        raise UserError(f"the class is {number}: classes are counted from 0", where=where, fix="a smaller number")
    return int(number)


class ImageLoader:
    """Batches of one epoch after another. Iterating starts threads; they end with the iteration."""

    def __init__(self, entries: Sequence[ImageEntry], options: ImageOptions) -> None:
        self.entries, self.options = entries, options
        self.decode: Decoder = decoder(options.decoder)
        self.files: dict[str, int] = {}
        self.lock = threading.Lock()  # two threads may want the same tar file first
        self.buffers: deque[torch.Tensor] = deque()
        self.mean = (torch.tensor(MEAN) * 255).repeat(options.size)
        self.scale = 1 / (torch.tensor(SPREAD) * 255).repeat(options.size)

    def epoch(self, number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(images as NCHW, labels); the last, incomplete batch is left out. A batch's memory is used again for the one
        after the next: copy it to the GPU, or clone it, before asking for that."""
        options, order = self.options, self._order(number)
        starts = range(0, len(order) - options.batch + 1, options.batch)
        pending: deque[Pending] = deque()
        with ThreadPoolExecutor(options.threads) as pool:
            try:
                for start in starts:
                    pending.append(self._submit(pool, order[start : start + options.batch], number))
                    if len(pending) > options.ahead:
                        yield _finished(pending.popleft())
                while pending:
                    yield _finished(pending.popleft())
            finally:
                for *_, futures in pending:
                    for future in futures:
                        future.cancel()
        self.close()

    def close(self) -> None:
        while self.files:
            os.close(self.files.popitem()[1])

    def _order(self, number: int) -> list[int]:
        order = list(range(len(self.entries)))
        if self.options.shuffle:
            random.Random(f"{self.options.seed}/{number}").shuffle(order)
        return order

    def _submit(self, pool: ThreadPoolExecutor, chosen: list[int], epoch: int) -> Pending:
        threads = self.options.threads
        images = self._buffer()
        labels = torch.tensor([self.entries[index].label for index in chosen])
        places = list(range(len(chosen)))
        work = [pool.submit(self._fill, images, chosen, places[at::threads], epoch) for at in range(threads)]
        return images, labels, work

    def _buffer(self) -> torch.Tensor:
        """The buffers take turns: fresh memory for each batch would cost as much as a third of the decoding."""
        if len(self.buffers) < self.options.ahead + 2:
            side, dtype = self.options.size, torch.float32 if self.options.floats else torch.uint8
            self.buffers.append(torch.empty((self.options.batch, side, side, 3), dtype=dtype))
        else:
            self.buffers.rotate(-1)
        return self.buffers[-1]

    def _fill(self, images: torch.Tensor, chosen: list[int], places: list[int], epoch: int) -> None:
        """One thread's share of a batch. The decoders release Python's lock, so the threads run side by side."""
        side, seed, floats = self.options.size, self.options.seed, self.options.floats
        scratch = torch.empty((side, side, 3), dtype=torch.uint8)
        targets, rows = images.numpy(), images.view(len(images), side, -1)
        for place in places:
            index = chosen[place]
            entry = self.entries[index]
            dice = random.Random(index * 1_000_003 + epoch * 7_919 + seed)
            try:
                target = scratch.numpy() if floats else targets[place]
                self.decode(self._read(entry), partial(random_crop, dice), target)
            except (OSError, ValueError) as error:
                where = f"{entry.path} at byte {entry.offset}"
                raise UserError(f"cannot decode the image: {error}", where=where, fix="remove or replace it") from error
            if floats:
                # A row of pixels at a time and image by image, so that the work stays in the processor's cache.
                rows[place].copy_(scratch.view(side, -1)).sub_(self.mean).mul_(self.scale)

    def _read(self, entry: ImageEntry) -> bytes:
        if entry.offset == 0:
            with open(entry.path, "rb") as handle:
                return handle.read()
        with self.lock:
            if entry.path not in self.files:
                self.files[entry.path] = os.open(entry.path, os.O_RDONLY)
        return os.pread(self.files[entry.path], entry.size, entry.offset)


def _finished(item: Pending) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels, work = item
    for future in work:
        future.result()
    return images.permute(0, 3, 1, 2), labels


def normalized(images: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Floats with ImageNet's mean and spread taken out, on the device the batch is on."""
    mean, spread = (torch.tensor(v, device=images.device).view(1, 3, 1, 1) * 255 for v in (MEAN, SPREAD))
    return images.to(dtype).sub_(mean.to(dtype)).div_(spread.to(dtype))
