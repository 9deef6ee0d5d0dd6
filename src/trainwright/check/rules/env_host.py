"""ENV: variables and versions against the node: network interfaces, what a GPU needs, paths that must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.instances import InstanceType
from trainwright.catalog.version_numbers import find_version, parse_version
from trainwright.catalog.versions import minimums_for, software_title
from trainwright.check import reasons
from trainwright.check.launches.env_levels import TRAINING_KINDS
from trainwright.check.launches.environments import Setting, settings
from trainwright.check.launches.job_sizes import multi_node, once, type_of
from trainwright.check.launches.scopes import branches, given_to, is_replaced
from trainwright.check.model import File, Job, Pin, known, stated
from trainwright.check.readers.instance_hint import instance_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machine

if TYPE_CHECKING:
    from trainwright.check.facts import NodeFacts

_LATER_CARET = re.compile(r"\^[^,]*,(.*,)?\^")
_NODE_COUNTS = ("NNODES", "NUM_NODES")
_POD = ("eth0",)
_PREDICTABLE = ("ens5", "ens32", "enp71s0", "enp0s1")  # as systemd names them on Nitro instances
_NAMED_BY_SYSTEMD = ("ubuntu", "alinux2023")
# Networks beside the one of the pods, and values that a template fills in.
_MORE_INTERFACES = re.compile(
    r"cni\.cncf\.io|networking\.gke\.io/|multus|macvlan|sr-?iov|\brdma/|hostNetwork:\s*(?!true\b|false\b)\S",
    re.IGNORECASE,
)
_PATH_VARIABLES = ("LD_PRELOAD", "NCCL_TUNER_PLUGIN", "NCCL_NET_PLUGIN", "NCCL_TOPO_FILE")


@rule("ENV003", "error")
def interface_exists(file: File) -> Iterator[Problem]:
    """NCCL_SOCKET_IFNAME must match at least one network interface of the node.

    A Kubernetes pod has eth0 only, unless it uses the host network. P4 and later under Ubuntu or Amazon Linux 2023 name
    their interfaces ens… or enp…, and have no eth0. A value is a prefix; `^` before the list excludes, and a second one
    is part of a name. Every node has `lo`, but no node reaches another by it.

    Why: NCCL finds no interface for its bootstrap and every rank stops with "no socket interface found", while the
    nodes cost 55 USD per hour each (p5.48xlarge).

    Fix: in pods remove it or set eth0; on P4 and later set en.

    Source: NCCL documentation; EFA cheatsheet of awsome-distributed-ai, where nine launchers exclude eth.

    When to ignore: the image renames its interfaces.
    """
    yield from once(
        # A switch of the script, or its caller, decides.
        replace(p, level="info") if branches(file, setting.variable) or setting.variable.value.default else p
        for setting in _named(file, "NCCL_SOCKET_IFNAME")
        for p in _interface(file, setting)
    )


def _named(file: File, *names: str) -> list[Setting]:
    """Where these variables are set and not replaced."""
    named = [setting for setting in settings(file) if setting.variable.name in names]
    return [one for one in named if one.script is None or not is_replaced(one.script, one.variable)]


def _interface(file: File, setting: Setting) -> Iterator[Problem]:
    variable = setting.variable
    if not variable.value.known or not setting.value:
        return
    if _LATER_CARET.match(setting.value):
        yield _caret(setting)
        return
    if setting.value.lstrip("=") == "lo":
        yield from _loopback(setting)
        return
    if setting.job is None:
        return
    pod = setting.job.pod
    if pod is not None:
        if not pod.host_network and not _leaves(setting.value, _POD):
            yield problem(
                variable.value,
                f"{setting.value} matches no interface: without hostNetwork a pod has eth0",
                "remove the variable, or write eth0",
                level="info" if _MORE_INTERFACES.search(file.text) else None,
            )
        return
    system = _system(file)
    new = setting.type_ is not None and setting.type_.is_gpu and setting.type_.efa_cards >= 4
    if new and setting.type_ is not None and system != "eth" and not _leaves(setting.value, _PREDICTABLE):
        if _in_own_network(setting):
            return
        names = f"{setting.type_.name} names them ens… and enp…"
        yield problem(
            variable.value,
            f"{setting.value} matches no interface: "
            + (names if system == "en" else f"under Ubuntu and Amazon Linux 2023 {names}"),
            "write en",
            level=None if system == "en" else "info",  # Amazon Linux 2 has eth0
        )


def _in_own_network(setting: Setting) -> bool:
    """Whether the variable is given to a container that does not use the network of the node."""
    if setting.script is None or not setting.variable.prefix:
        return False
    dockers = [one for one in given_to(setting.script, setting.variable) if one.program == "docker"]
    return any((one.options.get("network") or one.options.get("net")) is None for one in dockers)


def _caret(setting: Setting) -> Problem:
    """`^lo,^docker`: the sign stands once, before the list."""
    later = [name for name in setting.value.split(",")[1:] if name.startswith("^")]
    return problem(
        setting.variable.value,
        f"only the first ^ is a sign: NCCL takes {later[0]} for a name, and does not exclude {later[0][1:]}",
        f"write ^{setting.value.replace('^', '')}",
        level="warning",
        why=reasons.LATER_CARET,
    )


def _loopback(setting: Setting) -> Iterator[Problem]:
    """Right on one node, where it is a common choice; wrong on several, although every node has it."""
    job = setting.job
    if (job is not None and _on_several_nodes(job)) or (job is None and _counts_nodes(setting)):
        yield problem(
            setting.variable.value,
            "lo is the loopback interface: the ranks of other nodes are given 127.0.0.1, where they reach nobody",
            "remove the variable, or name the network interface",
            why=reasons.LOOPBACK,
        )


def _counts_nodes(setting: Setting) -> bool:
    """Whether a file that only sets variables counts several nodes in another."""
    beside = setting.script.env if setting.script is not None else []
    counts = [stated(one.value) or "" for one in beside if one.name in _NODE_COUNTS]
    return any(count.isdecimal() and int(count) > 1 for count in counts)


def _on_several_nodes(job: Job) -> bool:
    replicas = known(job.pod.replicas) if job.pod is not None and job.pod.kind in TRAINING_KINDS else None
    alone = job.launch is not None and "standalone" in job.launch.options
    together = multi_node(job) and (job.pod is None or job.pod.kind in TRAINING_KINDS or job.launch is not None)
    return not alone and (together or (replicas or 1) > 1)


def _system(file: File) -> str:
    """How the operating system names interfaces: en, eth, or empty when the file does not show it."""
    systems = [cluster.os.value for cluster in file.clusters if cluster.os is not None and cluster.os.known]
    if systems:
        return "en" if systems[0].startswith(_NAMED_BY_SYSTEMD) else "eth"
    return "en" if "/home/ubuntu" in file.text else ""


def _leaves(wanted: str, interfaces: tuple[str, ...]) -> bool:
    """Whether a value of NCCL_SOCKET_IFNAME leaves one of the interfaces."""
    exclude, exact = wanted.startswith("^"), "=" in wanted[:2]
    names = [name for name in wanted.lstrip("^=").split(",") if name]
    for interface in interfaces:
        matched = any(interface == name if exact else interface.startswith(name) for name in names)
        if matched != exclude:
            return True
    return False


@rule("ENV003", "error", needs="node")
def interface_exists_here(file: File, node: NodeFacts) -> Iterator[Problem]:
    """NCCL_SOCKET_IFNAME must match at least one network interface of this node.

    Why: NCCL finds no interface for its bootstrap and every rank stops, while the nodes cost 55 USD per hour each
    (p5.48xlarge).

    Fix: name an interface the node has.

    Source: NCCL documentation.

    When to ignore: the job runs on other nodes than the one where the check ran.
    """
    present = tuple(name for name in node.interfaces() if name != "lo")
    for setting in _named(file, "NCCL_SOCKET_IFNAME"):
        variable = setting.variable
        if variable.value.known and not _leaves(setting.value, present) and not _in_own_network(setting):
            yield problem(
                variable.value,
                f"{setting.value} matches no interface of this node ({', '.join(present)})",
                "name one of them",
                level="info" if branches(file, variable) else None,
            )


@rule("ENV004", "error")
def versions_suit_the_gpu(file: File) -> Iterator[Problem]:
    """The pinned CUDA, NCCL, plugin and torch versions must support the GPU.

    P5 needs CUDA 11.8 (better 12.0), NCCL 2.18.0 (better 2.18.5) and aws-ofi-nccl 1.7.2 (better 1.7.3); Blackwell needs
    CUDA 12.8 and torch 2.7. What is only recommended is a note. A list of architectures to compile for must contain the
    GPU's own, or an older one of its generation (8.0 runs on 8.6).

    Why: kernels are missing at the first call, or NCCL falls back to TCP, with 100 instead of 3,200 Gbps on
    p5.48xlarge.

    Fix: raise the version, or add the architecture.

    Source: EFA cheatsheet of awsome-distributed-ai; release notes of CUDA and PyTorch.

    When to ignore: the vendor backported support into the pinned version.
    """
    yield from once([*_old_versions(file), *_architectures(file)])


def _old_versions(file: File) -> Iterator[Problem]:
    machines = [t for t in (type_of(job) for job in file.jobs) if t is not None]
    machines += [t for t in (machine(instance_of(s)) for s in file.scripts if s.kind == "dockerfile") if t is not None]
    names = {t.name for t in machines}
    if len(names) != 1 or machines[0].accelerator is None:
        return
    old = [p for pin in file.pins for p in _old(pin, machines[0])]
    lines: set[int] = set()  # an image that is too old is so in several ways
    for p in sorted(old, key=lambda one: one.level is not None):
        if p.span.line not in lines:
            yield p
        lines.add(p.span.line)


def _old(pin: Pin, type_: InstanceType) -> Iterator[Problem]:
    version = find_version(pin.version.value)
    needs = minimums_for(type_.accelerator or "", pin.software)
    if version is None or not needs or (pin.software == "torch" and "nvcr.io" in pin.version.text):
        return  # NVIDIA builds torch for its newest cards before the wheels have them
    need, title = needs[0], software_title(pin.software)
    if version < need.minimum:
        yield problem(
            pin.version,
            f"{title} {pin.version.value} on {type_.name}: {need.why}",
            f"use {'an image with ' if '/' in pin.version.text else ''}{need.minimum} or later",
        )
    elif need.recommended is not None and version < need.recommended:
        yield problem(
            pin.version,
            f"{title} {pin.version.value} on {type_.name} works, but {need.recommended} is recommended",
            f"use {need.recommended} or later",
            level="info",
            why=f"{need.why}.",
        )


_DOTTED = re.compile(r"(\d+)\.(\d)(a?)(\+PTX)?(?=[\s;,]|$)", re.IGNORECASE)
_REAL = re.compile(r"sm_(\d+)(\d)(a?)")


def _architectures(file: File) -> Iterator[Problem]:
    for setting in settings(file):
        type_ = setting.type_
        chip = find_accelerator(type_.accelerator) if type_ is not None and type_.accelerator else None
        if chip is None or type_ is None or not chip.arch.startswith("sm_") or not setting.variable.value.known:
            continue
        number = chip.arch.removeprefix("sm_")
        text, own = setting.value, (int(number[:-1]), int(number[-1]))
        if setting.variable.name == "TORCH_CUDA_ARCH_LIST":
            listed = [(int(one[1]), int(one[2])) for one in _DOTTED.finditer(text)]
            # Names (`Hopper`, `All`) and PTX leave it to torch and to the driver.
            plain = "PTX" not in text.upper() and re.search(r"[a-z]", _DOTTED.sub("", text), re.IGNORECASE) is None
            if listed and plain and not _runs_on(listed, own):
                message = f"compiled for {text}, which does not run on {type_.name} ({own[0]}.{own[1]})"
                yield problem(setting.variable.value, message, f"add {own[0]}.{own[1]}", why=reasons.NO_KERNEL_IMAGE)
        elif setting.variable.name == "NVCC_GENCODE":
            listed = [(int(one[1]), int(one[2])) for one in _REAL.finditer(text)]
            if listed and not re.search(r"code=\[?[\w,]*compute_", text) and not _runs_on(listed, own):
                yield problem(
                    setting.variable.value,
                    f"compiled without {chip.arch}, the architecture of {type_.name}",
                    f"add -gencode=arch=compute_{number},code={chip.arch}",
                    why=reasons.NO_KERNEL_IMAGE,
                )


def _runs_on(listed: list[tuple[int, int]], own: tuple[int, int]) -> bool:
    """Code for 8.0 runs on 8.6, that for 8.6 not on 8.0, and none on the next generation."""
    return any(major == own[0] and minor <= own[1] for major, minor in listed)


@rule("ENV004", "error", needs="node")
def versions_here_suit_the_gpu(file: File, node: NodeFacts) -> Iterator[Problem]:
    """The software of this node must support the GPU the job is for.

    Why: kernels are missing at the first call, or NCCL falls back to TCP, with 100 instead of 3,200 Gbps on
    p5.48xlarge.

    Fix: update the node's image.

    Source: EFA cheatsheet of awsome-distributed-ai.

    When to ignore: the job runs in a container that brings its own versions.
    """
    for job in file.jobs:
        type_ = type_of(job)
        if type_ is None or type_.accelerator is None or job.instance is None:
            continue
        for need in minimums_for(type_.accelerator):
            here = node.version(need.software)
            if here is not None and parse_version(here) < need.minimum:
                yield problem(
                    job.instance,
                    f"{software_title(need.software)} {here} on this node, but {type_.name} needs {need.minimum}",
                    "update the node's image",
                )


@rule("ENV005", "warning", needs="node")
def paths_exist(file: File, node: NodeFacts) -> Iterator[Problem]:
    """Libraries named in LD_PRELOAD and the plugin variables must exist where the job runs.

    Why: a missing preload is only a line in the log, and NCCL then runs with another library than intended; without
    its plugin over TCP, with 100 instead of 3,200 Gbps on p5.48xlarge.

    Fix: correct the path, or remove the variable.

    Source: launchers with paths of one CUDA version (awsome-distributed-ai); NeMo-RL issue 1973; EC2 instance types
    (bandwidth).

    When to ignore: the path exists inside the container only.
    """
    for setting in _named(file, *_PATH_VARIABLES):
        variable, job = setting.variable, setting.job
        if not variable.value.known or (job is not None and (job.image is not None or job.pod is not None)):
            continue  # the path is one of the container
        for path in re.split(r"[:\s]+", setting.value):
            if path.startswith("/") and not node.path_exists(path):
                why = reasons.NO_PRELOAD if variable.name == "LD_PRELOAD" else reasons.NO_PLUGIN
                what = f"{variable.name} names {path}, which does not exist here"
                yield problem(variable.value, what, "correct the path", why=why)
