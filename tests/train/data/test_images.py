"""The image loader: the same pictures whichever decoder, the same order whichever threads, nothing below the crop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from trainwright.errors import UserError
from trainwright.train.data.image_decoders import MAKERS, Crop, decoder, frame_header, installed
from trainwright.train.data.images import ImageLoader, ImageOptions, list_images, normalized
from trainwright.train.data.loader_bench import made_up_images


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_images(tmp_path_factory.mktemp("images"), 24)


def smooth(width: int, height: int) -> Image.Image:
    rows, columns = numpy.mgrid[0:height, 0:width]
    waves = [128 + 100 * numpy.sin(columns / 40 + k) * numpy.cos(rows / 30) for k in range(3)]
    return Image.fromarray(numpy.stack(waves, -1).astype(numpy.uint8))


def decoded(name: str, data: bytes, crop: Crop, side: int) -> numpy.ndarray:
    out = numpy.zeros((side, side, 3), numpy.uint8)
    decoder(name)(data, lambda w, h: crop, out)
    return out.astype(int)


def encoded(image: Image.Image, path: Path, **options: object) -> bytes:
    image.save(path, **options)
    return path.read_bytes()


@pytest.mark.parametrize("crop", [(0, 0, 500, 375), (40, 10, 200, 150), (300, 250, 190, 120), (0, 300, 100, 75)])
@pytest.mark.parametrize("name", [name for name in installed() if name != "pillow"])
def test_decoders_agree_with_pillow(name: str, crop: tuple[int, int, int, int], tmp_path: Path) -> None:
    data = encoded(smooth(500, 375), tmp_path / "a.jpg", quality=90)
    for mirror in (False, True):
        ours, reference = (decoded(one, data, (*crop, mirror), 64) for one in (name, "pillow"))
        assert numpy.abs(ours - reference).mean() < 3


def test_large_images_are_decoded_at_a_part_of_their_size(tmp_path: Path) -> None:
    data = encoded(smooth(2000, 1500), tmp_path / "a.jpg", quality=90)
    ours, reference = (decoded(one, data, (100, 80, 1800, 1300, False), 224) for one in ("turbojpeg", "pillow"))
    assert numpy.abs(ours - reference).mean() < 3


def test_progressive_jpeg_and_png_take_the_other_path(tmp_path: Path) -> None:
    progressive = encoded(smooth(300, 200), tmp_path / "a.jpg", progressive=True)
    png = encoded(smooth(300, 200), tmp_path / "a.png")
    assert frame_header(progressive) is None
    assert frame_header(png) is None
    for data in (progressive, png):
        ours, reference = (decoded(one, data, (0, 0, 100, 100, False), 32) for one in ("turbojpeg", "pillow"))
        assert numpy.abs(ours - reference).mean() < 3


def batches(source: Path, **options: object) -> list[tuple[torch.Tensor, torch.Tensor]]:
    entries, _ = list_images(str(source))
    loader = ImageLoader(entries, ImageOptions(size=32, batch=8, **options))
    return [(images.clone(), labels) for images, labels in loader.epoch(0)]


def test_batches_do_not_depend_on_the_number_of_threads(tar: Path) -> None:
    one, three = batches(tar, threads=1, seed=5), batches(tar, threads=3, seed=5)
    assert len(one) == 3
    for (a, la), (b, lb) in zip(one, three, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(la, lb)
    assert not torch.equal(one[0][0], batches(tar, threads=1, seed=6)[0][0])


def test_floats_are_the_normalised_bytes(tar: Path) -> None:
    plain, floats = batches(tar, threads=2), batches(tar, threads=2, floats=True)
    assert plain[0][0].dtype == torch.uint8
    assert torch.allclose(floats[1][0], normalized(plain[1][0]), atol=1e-4)


def test_a_folder_reads_as_the_tar_does(tar: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", str(tar), "-C", str(tmp_path)], check=True)
    entries, names = list_images(str(tmp_path))
    assert names == ["class0", "class1", "class2", "class3"]
    assert sorted(e.size for e in entries) == sorted(e.size for e in list_images(str(tar))[0])


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(8):
        (tmp_path / f"a/{number}.jpg").write_bytes(b"not an image")
    with pytest.raises(UserError, match="cannot decode") as caught:
        batches(tmp_path, threads=2)
    assert ".jpg" in caught.value.where


def test_no_image_and_no_decoder_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no image"):
        list_images(str(tmp_path))
    with pytest.raises(UserError, match="no decoder"):
        decoder("gif")
    assert [name for name in installed() if name != "torchvision"] == [name for name in MAKERS if name != "torchvision"]


def test_bench_loader_compares_and_recommends(tmp_path: Path) -> None:
    words = ["--count", "16", "--batch", "8", "--size", "32", "--threads", "1", "--seconds", "0.2", "--step-time", "1"]
    command = [sys.executable, "-m", "trainwright.train", "bench", "loader", *words, "-o", str(tmp_path / "r.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "recommended here: trainwright" in done.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    names = {row["name"] for row in result["rows"]}
    assert names >= {"PyTorch DataLoader, Pillow", "trainwright, turbojpeg", "trainwright, opencv"}
    assert all(0 <= row["starved"] <= 1 for row in result["rows"])
