"""Print which torch each release of torchvision and torchaudio requires (nothing where it takes several), as the table
that `check` reads, from the metadata of their wheels (pip fetches it without the wheel):
`python tools/torch_pins.py > src/trainwright/check/data/torch_pins.csv`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date

FIRST = {"torchvision": (0, 5), "torchaudio": (0, 4)}  # those of torch 1.4
PYTHONS = ("3.8", "3.10", "3.13")  # no one version of Python has wheels of all releases
PLATFORMS = ("manylinux1_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64")
_VERSIONS = re.compile(r"Available versions: (.*)")
_TORCH = re.compile(r"torch\s*\(?==\s*([\d.]+)\)?\s*$")


def pip(*words: str, python: str) -> str:
    wheels = [f"--platform={name}" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", *words, "--python-version", python, "--only-binary=:all:", *wheels]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def releases(software: str) -> dict[str, str]:
    """Version -> a version of Python that has it."""
    found: dict[str, str] = {}
    for python in PYTHONS:
        listed = _VERSIONS.search(pip("index", "versions", software, python=python))
        found |= dict.fromkeys(listed[1].split(", "), python) if listed is not None else {}
    return {version: found[version] for version in sorted(found, key=numbers) if numbers(version) >= FIRST[software]}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))


def required(software: str, version: str, python: str) -> str:
    """The one torch that a release requires; empty where it takes several."""
    words = ("install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--target=/tmp/none", "--report=-")
    report = json.loads(pip(*words, f"{software}=={version}", python=python))
    lines = report["install"][0]["metadata"].get("requires_dist", [])
    return next((match[1] for line in lines if (match := _TORCH.fullmatch(line))), "")


def rows() -> Iterator[tuple[str, str, str]]:
    for software in FIRST:
        for version, python in releases(software).items():
            torch = required(software, version, python)
            print(software, version, torch or "several", file=sys.stderr)
            yield software, version, torch


if __name__ == "__main__":
    print("# source: Requires-Dist of the wheels of torchvision and torchaudio")
    print(f"# date: {date.today()}")
    print("software,version,torch")
    for row in rows():
        print(",".join(row))
