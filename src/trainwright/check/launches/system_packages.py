"""Versions that a set-up script chooses by the names of packages: `apt-get install nvidia-driver-550`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.catalog.version_numbers import Version, find_version
from trainwright.check.launches.pip_places import of_pip
from trainwright.check.model import Command, Pin, ShellScript, Value
from trainwright.check.readers.pins import part

_MANAGERS = ("apt-get", "apt", "aptitude", "dnf", "yum", "tdnf", "zypper")
_DRIVER = re.compile(r"(?:nvidia-(?:driver|dkms|headless|headless-no-dkms|open)|cuda-drivers)[-:](\d{3})(\.\d+)*(?!\d)")
# Not `cuda` and `cuda-runtime`, which bring a driver along.
_CUDA = re.compile(r"cuda-(?:toolkit|libraries|nvcc|cudart|compiler)-(\d{2})(?:-(\d+))?(?!\w)")
_RUN_FILE = re.compile(r"(?:.*/)?cuda_(\d+\.\d+)\.\d+_[\d.]+_linux\w*\.run")
_WHEELS = re.compile(r"download\.pytorch\.org/whl/cu(\d{2})(\d)(?!\d)")
_NEWEST = 999  # of a branch: a package of branch 550 installs its last release


def package_pins(script: ShellScript) -> dict[str, tuple[Pin, Version]]:
    """The driver and the CUDA that every run of a set-up script installs, each with the number to compare; nothing of
    what it installs in several versions."""
    chosen: dict[str, list[Pin]] = {}
    for command in script.commands if script.kind != "dockerfile" else ():
        for pin in _pins(command) if not command.branch else ():
            chosen.setdefault(pin.software, []).append(pin)
    pins = {
        software: several[0] for software, several in chosen.items() if len({p.version.value for p in several}) == 1
    }
    versions = {software: find_version(_comparable(pin)) for software, pin in pins.items()}
    return {software: (pins[software], version) for software, version in versions.items() if version is not None}


def _comparable(pin: Pin) -> str:
    return f"{pin.version.value}.{_NEWEST}" if pin.software == "driver" else pin.version.value


def _pins(command: Command) -> Iterator[Pin]:
    words = [word for word in command.words if word.known]
    if command.program in _MANAGERS and any(word.value in ("install", "in") for word in words[1:]):
        for word in words:
            driver, cuda = _DRIVER.match(word.value), _CUDA.match(word.value)
            if driver is not None:
                yield Pin("driver", part(word, driver.start(1), driver.end(1)))
            if cuda is not None:
                yield _cuda(word, cuda.start(1), cuda.end(), f"{cuda[1]}.{cuda[2] or 0}")
    elif any(word.value == "--toolkit" for word in words) and not any(word.value == "--driver" for word in words):
        matches = ((word, _RUN_FILE.match(word.value)) for word in words)
        yield from (_cuda(word, match.start(1), match.end(1), match[1]) for word, match in matches if match is not None)
    elif of_pip(command):
        matches = ((word, _WHEELS.search(word.value)) for word in words)
        yield from (_cuda(word, m.start(1), m.end(), f"{m[1]}.{m[2]}") for word, m in matches if m is not None)


def _cuda(word: Value[str], start: int, end: int, version: str) -> Pin:
    return Pin("cuda", replace(part(word, start, end), value=version))
