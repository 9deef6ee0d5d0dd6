"""`bench loader`: tokens or images per second by setting, beside the plain PyTorch DataLoader; the best setting."""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from trainwright.bench.machine import result_header
from trainwright.bench.results import write_result
from trainwright.errors import UserError
from trainwright.train.data.image_decoders import installed, random_crop
from trainwright.train.data.images import MEAN, SPREAD, ImageEntry, ImageLoader, ImageOptions, list_images

Batches = Callable[[], Iterator[int]]  # yields how many images or tokens each batch holds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "data",
        nargs="?",
        default="",
        help="folder or tar of images, or folder of token shards; default: made-up images",
    )
    add("--threads", default="", metavar="N,N", help="settings to try (default: 1, 2, 4 ... cores)")
    add(
        "--decoders",
        default="",
        metavar="A,B",
        help="of turbojpeg, opencv, pillow, torchvision, dali (default: all installed)",
    )
    add("--batch", type=int, default=64, metavar="N")
    add("--size", type=int, default=224, metavar="PIXELS", help="side of the decoded square (default: 224)")
    add("--count", type=int, default=512, metavar="N", help="made-up images (default: 512)")
    add("--seconds", type=float, default=3.0, help="time for each setting (default: 3)")
    add(
        "--step-time", type=float, default=0.0, metavar="MS", help="a training step, to say how long the GPU would wait"
    )
    add("--sequence", type=int, default=2048, help="tokens per sample (default: 2048)")
    add("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        source = args.data or str(made_up_images(Path(scratch), args.count))
        tokens = (Path(source) / "manifest.json").exists()
        rows = token_rows(source, args) if tokens else image_rows(source, args)
    best = max((row for row in rows if row["ours"]), key=lambda row: row["per_s"])
    kind = "tokens" if tokens else "images"
    result = {
        **result_header("loader"),
        "kind_of_data": kind,
        "data": args.data or "made up",
        "rows": rows,
        "best": best,
    }
    write_result(result, args.output)
    print(json.dumps(result) if args.json else text(result))
    return 0


def text(result: dict[str, Any]) -> str:
    kind, best = result["kind_of_data"], result["best"]
    lines = [f"{'loader':<28} {'threads':>7} {kind + '/s':>12} {'per CPU s':>12} {'CPU':>6} {'GPU waits':>10}"]
    for row in result["rows"]:
        waits = "-" if row["starved"] is None else f"{row['starved']:.0%}"
        lines.append(
            f"{row['name']:<28} {row['threads']:>7} {row['per_s']:>12,.0f} {row['per_cpu_s']:>12,.0f} "
            f"{row['cpu']:>5.0%} {waits:>10}"
        )
    plain = max((row["per_s"] for row in result["rows"] if row["plain"]), default=0.0)
    lines.append(f"recommended here: {best['name']}, {best['threads']} threads: {best['per_s']:,.0f} {kind}/s")
    if plain:
        lines.append(f"{best['per_s'] / plain:.1f} times the plain PyTorch DataLoader")
    return "\n".join(lines)


def settings(words: str) -> list[int]:
    """Thread counts to try: the user's, or doubling up to the cores."""
    cores = len(os.sched_getaffinity(0))
    try:
        chosen = [int(word) for word in words.split(",")] if words else []
    except ValueError as error:
        raise UserError(f"cannot read --threads {words!r}", fix="numbers with commas, such as 1,2,4") from error
    doubling = [2**n for n in range(cores.bit_length()) if 2**n < cores]
    return chosen or [*doubling, cores]


def image_rows(source: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    entries, _ = list_images(source)
    if len(entries) < args.batch:
        raise UserError(f"{len(entries)} images, fewer than one batch of {args.batch}", fix="--batch, or more images")
    names = args.decoders.split(",") if args.decoders else [*installed(), *(["dali"] if has_dali() else [])]
    rows = []
    for threads in settings(args.threads):
        if "pillow" in installed():
            plain = plain_batches(entries, args.batch, args.size, threads)
            rows.append(measured("PyTorch DataLoader, Pillow", plain, threads, args, plain=True))
        for name in names:
            if name == "dali":
                rows.append(measured("DALI, CPU", dali_batches(entries, args.batch, args.size, threads), threads, args))
            else:
                ours = our_batches(entries, args.batch, args.size, threads, name)
                rows.append(measured(f"trainwright, {name}", ours, threads, args, ours=True))
    return rows


def token_rows(source: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    from trainwright.train.data.loader import Loader, Options
    from trainwright.train.data.named import open_samples

    loader = Loader(open_samples([source], Options(sequence=args.sequence, seed=1)), args.batch, args.batch)

    def batches() -> Iterator[int]:
        seen = 0
        for _ in range(20):
            data = loader.step(seen)
            seen = data.seen
            yield sum(part.tokens.numel() for part in data.microbatches)

    return [measured("trainwright, token shards", batches, 1, args, ours=True)]


def measured(
    name: str, batches: Batches, threads: int, args: argparse.Namespace, *, ours: bool = False, plain: bool = False
) -> dict[str, Any]:
    """Whole epochs until the time is over: what is decoded ahead is then used, and counts. CPU time of all workers."""
    done, cpu, seconds = 0, 0.0, 0.0
    per_batch = 1
    while seconds < args.seconds:
        before, began = cpu_seconds(), time.perf_counter()
        for count in batches():
            done += count
            per_batch = count
        seconds += time.perf_counter() - began
        cpu += cpu_seconds() - before
    rate = done / seconds
    starved = max(0.0, 1 - rate / (per_batch / (args.step_time / 1000))) if args.step_time else None
    return {
        "name": name, "threads": threads, "per_s": rate, "per_cpu_s": done / max(cpu, 1e-9),
        "cpu": cpu / seconds / len(os.sched_getaffinity(0)), "starved": starved, "ours": ours, "plain": plain,
    }  # fmt: skip


def cpu_seconds() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


def our_batches(entries: list[ImageEntry], batch: int, side: int, threads: int, name: str) -> Batches:
    """Our loader, with floats made on the CPU as the peers make them."""
    loader = ImageLoader(entries, ImageOptions(side, batch, threads, name, floats=True))
    epochs = iter(range(1_000_000))

    def batches() -> Iterator[int]:
        for images, _ in loader.epoch(next(epochs)):
            yield len(images)

    return batches


class PlainImages(torch.utils.data.Dataset):
    """What most people write: Pillow in a Dataset, random crop, flip, float tensor, normalised, one image at a time."""

    def __init__(self, entries: list[ImageEntry], side: int) -> None:
        self.entries, self.side = entries, side
        self.mean, self.spread = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, SPREAD))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import numpy
        from PIL import Image

        entry = self.entries[index]
        with open(entry.path, "rb") as handle:
            handle.seek(entry.offset)
            image = Image.open(io.BytesIO(handle.read(entry.size))).convert("RGB")
        dice = random.Random()
        x, y, w, h, mirror = random_crop(dice, *image.size)
        image = image.crop((x, y, x + w, y + h)).resize((self.side, self.side), Image.Resampling.BILINEAR)
        if mirror:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return tensor.sub(self.mean).div(self.spread), entry.label


def plain_batches(entries: list[ImageEntry], batch: int, side: int, workers: int) -> Batches:
    def batches() -> Iterator[int]:
        data = PlainImages(entries, side)
        for images, _ in torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers, drop_last=True):
            yield len(images)

    return batches


def has_dali() -> bool:
    import importlib.util

    return importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None


def dali_batches(entries: list[ImageEntry], batch: int, side: int, threads: int) -> Batches:
    """DALI's CPU pipeline for the same work, fed with the same encoded bytes."""
    import numpy
    from nvidia.dali import fn, pipeline_def, types

    encoded = [numpy.frombuffer(_bytes(entry), numpy.uint8) for entry in entries]

    def epoch() -> Iterator[list[Any]]:
        for start in range(0, len(encoded) - batch + 1, batch):
            yield encoded[start : start + batch]

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=None, prefetch_queue_depth=2)
    def pipeline():
        data = fn.external_source(epoch, cycle="raise")
        images = fn.decoders.image_random_crop(data, device="cpu", random_area=[0.08, 1.0])
        images = fn.resize(images, size=[side, side], interp_type=types.INTERP_LINEAR, antialias=False)
        mean, spread = ([v * 255 for v in values] for values in (MEAN, SPREAD))
        return fn.crop_mirror_normalize(
            images, mean=mean, std=spread, output_layout="CHW", mirror=fn.random.coin_flip(), dtype=types.FLOAT
        )

    made = pipeline()
    made.build()

    def batches() -> Iterator[int]:
        while True:
            try:
                made.run()
            except StopIteration:
                made.reset()
                return
            yield batch

    return batches


def _bytes(entry: ImageEntry) -> bytes:
    with open(entry.path, "rb") as handle:
        handle.seek(entry.offset)
        return handle.read(entry.size)


def made_up_images(folder: Path, count: int) -> Path:
    """A tar of smooth and noisy pictures of 500 x 375 pixels, about as large as ImageNet's."""
    import numpy
    from PIL import Image

    chance = numpy.random.default_rng(0)
    rows, columns = numpy.mgrid[0:375, 0:500]
    path = folder / "images.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            waves = chance.uniform([20, 0, 0, 0], [60, 0.1, 0.1, 6], (4, 4))
            base = sum(a * numpy.sin(columns * fx + rows * fy + p) for a, fx, fy, p in waves)
            colours = 128 + base[..., None] * chance.uniform(0.5, 1, 3) + chance.normal(0, 12, (375, 500, 1))
            out = io.BytesIO()
            Image.fromarray(colours.clip(0, 255).astype(numpy.uint8)).save(out, "JPEG", quality=90)
            member = tarfile.TarInfo(f"class{number % 4}/{number:06}.jpg")
            member.size = out.tell()
            out.seek(0)
            tar.addfile(member, out)
    return path
