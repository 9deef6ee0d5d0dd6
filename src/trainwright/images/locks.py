"""The pins of what a container installs: every package of a framework with its version, resolved once by
tools/pin_images.py and kept as files, so that an image built next year holds the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainwright.catalog.families import Family, FrameworkImage
from trainwright.catalog.versions import version_set, version_sets
from trainwright.errors import UserError

FOLDER = Path(__file__).with_name("pins")
PYTHON = "3.11"  # the oldest that the pins work with; Ubuntu 24.04, the base of these images, has 3.12
GPU_ONLY = re.compile(r"(?i)^(nvidia-|cuda-|triton\b)")


def locked(families: Mapping[str, Family]) -> Iterator[tuple[FrameworkImage, str]]:
    """Each framework whose packages are pinned, with each torch it is pinned for. On a base that brings its own torch
    nothing can be resolved from outside: there only the packages themselves are pinned."""
    for family in families.values():
        if family.nccl != "wheel":
            continue
        for framework in family.frameworks.values():
            yield from ((framework, torch) for torch in torches(framework))


def torches(framework: FrameworkImage) -> list[str]:
    """The versions of torch that a framework is pinned for; one empty text where it needs none."""
    if "torch" not in framework.packages:
        return [""]
    return [framework.torch] if framework.torch else sorted({str(version_set(name).torch) for name in version_sets()})


def lock_name(framework: FrameworkImage, torch: str) -> str:
    return f"{framework.name}-torch{torch}.txt" if torch else f"{framework.name}.txt"


def requirements(framework: FrameworkImage, torch: str) -> tuple[str, ...]:
    """What a framework asks for, with torch's version."""
    return tuple(f"torch=={torch}" if package == "torch" else package for package in framework.packages)


def pins(framework: FrameworkImage, torch: str) -> tuple[tuple[str, str], ...]:
    """Every package that is installed, with its version."""
    path = FOLDER / lock_name(framework, torch)
    if not path.is_file():
        raise UserError(
            f"nothing is pinned for {framework.name} with torch {torch}",
            fix="choose another --set; tools/pin_images.py writes the pins",
        )
    return tuple(re.findall(r"(?m)^([A-Za-z0-9][A-Za-z0-9_.-]*)==([^\s;]+)", path.read_text(encoding="utf-8")))
