"""Decoders of JPEG images, by whichever library is installed: each decodes, crops and resizes to a square."""

from __future__ import annotations

import io
import math
import random
import threading
from collections.abc import Callable
from typing import Any

from trainwright.errors import UserError

Crop = tuple[int, int, int, int, bool]  # left, top, width, height, whether to mirror
CropOf = Callable[[int, int], Crop]  # (width, height) of the image -> what to cut out
Decoder = Callable[[bytes, CropOf, Any], None]  # fills a uint8 array, side x side x 3


def random_crop(dice: random.Random, width: int, height: int) -> Crop:
    """The crop of every ImageNet recipe: 8 to 100 % of the area, 3:4 to 4:3, anywhere, mirrored half of the time."""
    mirror = dice.random() < 0.5
    for _ in range(10):
        area = width * height * dice.uniform(0.08, 1.0)
        ratio = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return dice.randint(0, width - w), dice.randint(0, height - h), w, h, mirror
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side, mirror


def pillow() -> Decoder:
    """The reference: Pillow as torchvision's transforms use it."""
    import numpy
    from PIL import Image

    def decode(data: bytes, crop_of: CropOf, out: Any) -> None:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        x, y, w, h, mirror = crop_of(*image.size)
        image = image.resize(out.shape[:2], Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        out[:] = numpy.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirror else image)

    return decode


def opencv() -> Decoder:
    import cv2
    import numpy

    cv2.setNumThreads(1)  # the loader's threads are the parallelism

    def decode(data: bytes, crop_of: CropOf, out: Any) -> None:
        image = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise ValueError("OpenCV knows no such format, or the data is damaged")
        height, width = image.shape[:2]
        x, y, w, h, mirror = crop_of(width, height)
        _resize(cv2, image[y : y + h, x : x + w], mirror, out)
        cv2.cvtColor(out, cv2.COLOR_BGR2RGB, dst=out)

    return decode


def torchvision() -> Decoder:
    """torchvision's own decoder and its resizing with averaging, on tensors."""
    import torch

    try:
        from torchvision.io import ImageReadMode, decode_image
        from torchvision.transforms.v2.functional import horizontal_flip, resized_crop
    except RuntimeError as error:  # a torchvision built for another torch fails while it is imported
        raise ImportError(str(error)) from error

    def decode(data: bytes, crop_of: CropOf, out: Any) -> None:
        image = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        height, width = image.shape[-2:]
        x, y, w, h, mirror = crop_of(width, height)
        part = resized_crop(image, y, x, h, w, [len(out), len(out)], antialias=True)
        torch.from_numpy(out).copy_((horizontal_flip(part) if mirror else part).permute(1, 2, 0))

    return decode


def turbojpeg() -> Decoder:
    """libjpeg-turbo through simplejpeg: no row below the crop; a half or less of the size where enough."""
    import cv2
    import numpy
    import simplejpeg

    cv2.setNumThreads(1)
    other, own = opencv(), threading.local()

    def room(size: int) -> Any:
        """This thread's memory for a decoded image: fresh pages for each one would cost more than the resizing."""
        if getattr(own, "room", None) is None or own.room.size < size:
            own.room = numpy.empty(size, numpy.uint8)
        return own.room

    def decode(data: bytes, crop_of: CropOf, out: Any) -> None:
        at = frame_header(data)
        if at is None:
            other(data, crop_of, out)  # PNG, or a kind of JPEG that has to be decoded whole
            return
        height, width = int.from_bytes(data[at : at + 2]), int.from_bytes(data[at + 2 : at + 4])
        x, y, w, h, mirror = crop_of(width, height)
        power = max(p for p in (1, 2, 4, 8) if p == 1 or min(w, h) >= p * len(out))
        # Only the rows down to the crop's last are asked for: the decoder then ends there.
        rows = y + h
        if rows < height:
            data = b"".join((data[:at], rows.to_bytes(2), data[at + 2 :]))
        image = simplejpeg.decode_jpeg(
            data, "RGB", fastdct=True, fastupsample=True, min_height=-(-rows // power), min_width=-(-width // power),
            strict=False, buffer=room(rows * width * 3),
        )  # fmt: skip
        across, down = image.shape[1] / width, image.shape[0] / rows
        left, top = int(x * across), int(y * down)
        part = image[top : max(top + 1, round((y + h) * down)), left : max(left + 1, round((x + w) * across))]
        _resize(cv2, part, mirror, out)

    return decode


def _resize(cv2: Any, part: Any, mirror: bool, out: Any) -> None:
    """Into `out`; averages over areas where the image shrinks to less than half, as bilinear would skip pixels."""
    side = len(out)
    way = cv2.INTER_AREA if min(part.shape[:2]) > 2 * side else cv2.INTER_LINEAR
    cv2.resize(part, (side, side), dst=out, interpolation=way)
    if mirror:
        cv2.flip(out, 1, dst=out)


def frame_header(data: bytes) -> int | None:
    """Where a baseline JPEG says its height; None for other files and for progressive ones, which need every byte."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in (0xC0, 0xC1):
            return at + 5
        if 0xC2 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return None
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


MAKERS: dict[str, Callable[[], Decoder]] = {  # fastest first
    "turbojpeg": turbojpeg, "opencv": opencv, "pillow": pillow, "torchvision": torchvision,
}  # fmt: skip


def decoder(name: str = "") -> Decoder:
    """The named decoder, or the fastest whose libraries are installed."""
    if name and name not in MAKERS:
        raise UserError(f"no decoder {name!r}", fix=f"one of {', '.join(MAKERS)}")
    for candidate in [name] if name else MAKERS:
        try:
            return MAKERS[candidate]()
        except ImportError:
            continue
    missing = {
        "turbojpeg": "simplejpeg opencv-python-headless", "opencv": "opencv-python-headless",
        "torchvision": "torchvision, of the release that belongs to this torch",
    }  # fmt: skip
    raise UserError(
        f"no library for the decoder {name!r} is installed" if name else "no library that decodes images is installed",
        fix=f"pip install {missing.get(name, 'pillow')}",
    )


def installed() -> list[str]:
    """The decoders that can be used here, fastest first."""
    usable = []
    for name, make in MAKERS.items():
        try:
            make()
        except ImportError:
            continue
        usable.append(name)
    return usable
