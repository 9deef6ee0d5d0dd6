"""IMG: versions that one file pins, against each other."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.version_numbers import find_version
from trainwright.catalog.versions import conflicts, efa_installer, software_title
from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.environments import versions_in
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.system_packages import package_pins
from trainwright.check.model import File, Pin
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.img_wheels import wheels_without_cuda


@rule("IMG005", "error")
def versions_go_together(file: File) -> Iterator[Problem]:
    """The versions that an image or a set-up script pins must go together.

    CUDA 13 needs driver 580, CUDA 12 driver 525.60.13: by variables, archives and, in a set-up script, the names of
    packages (`nvidia-driver-550`, `cuda-toolkit-13-0`) and of torch's index (`cu130`). Driver 580 and later need the
    EFA driver of installer 1.43.3. An EFA installer from 1.41 on brings aws-ofi-nccl along: an older one that is built
    beside it is a second plugin (a note). So is all that an image says of drivers, which are the node's, and an old
    driver beside the package `cuda-compat`. torch from the index for CPUs (or ROCm), in a command or in the list that
    it installs, in an image with CUDA that starts ranks or installs CUDA's packages is a warning; wheels of another
    CUDA bring their own.

    Why: the first CUDA call fails on every node (CUDA 12 needs a driver of 525 or later, CUDA 13 one of 580);
    peer-to-peer traffic goes through host memory; or NCCL loads whichever plugin comes first in the library path.

    Fix: take versions of one set: `trainwright image sets` lists them, `trainwright image container` writes them.

    Source: release notes of CUDA and of the EFA installer; health/data/compatibility.csv has each row's own; CUDA
    release notes, driver versions.

    When to ignore: the combination was measured at full bandwidth.
    """
    yield from once(wheels_without_cuda(file))
    known = versions_in(file)
    pinned = {pin.software: pin for pin in reversed(file.pins) if pin.software in known}  # where it is stated first
    for software, (pin, version) in (package_pins(file.scripts[0]) if len(file.scripts) == 1 else {}).items():
        exact = software == "driver" and "fabric_manager" in known  # which the branch of a driver does not decide
        if not exact and not any(one.software == software for one in file.pins):
            known[software], pinned[software] = version, pin
    if not pinned:
        return
    problems = [
        problem(
            pinned[one.software].version,
            f"{software_title(one.software)} {pinned[one.software].version.value}: {one.why}",
            f"use {one.requires} or later" if one.requires else "use versions of one set",
            level="info" if _is_elsewhere(file, one.why) else _level(one.level),
            why=reasons.DRIVER_TOO_OLD if one.why.startswith("CUDA") else _mechanism(one.software),
        )
        for one in conflicts(known)
        if one.software in pinned
    ]
    yield from once([*problems, *_second_plugin(pinned)])


def _is_elsewhere(file: File, why: str) -> bool:
    """Whether the driver is the node's, or is made to do for a newer CUDA (forward compatibility)."""
    return file.format == "dockerfile" or (why.startswith("CUDA") and "cuda-compat" in file.text)


def _mechanism(software: str) -> str:
    return reasons.FABRIC_MANAGER if software == "fabric_manager" else reasons.NO_PEER_MEMORY


def _level(level: str) -> Level:
    return "error" if level == "error" else "warning"


def _second_plugin(pinned: dict[str, Pin]) -> Iterator[Problem]:
    if "efa" not in pinned or "ofi_nccl" not in pinned:
        return
    installer, plugin = find_version(pinned["efa"].version.value), find_version(pinned["ofi_nccl"].version.value)
    brings = efa_installer(installer) if installer is not None else None
    if brings is not None and plugin is not None and plugin < brings.ofi_nccl:
        yield problem(
            pinned["ofi_nccl"].version,
            f"aws-ofi-nccl {pinned['ofi_nccl'].version.value} beside EFA installer {installer}, which brings "
            f"{brings.ofi_nccl} along: NCCL loads one of the two",
            "use the plugin of the installer, in /opt/amazon/ofi-nccl",
            level="info",  # the library path decides which, and an older one may be meant
            why=reasons.TWO_PLUGINS,
        )
