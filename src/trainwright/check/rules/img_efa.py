"""IMG: containers on nodes with EFA: what their image installs and what they get from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.check import reasons
from trainwright.check.finding import Edit
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import Command, File, ShellScript, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Span


@rule("IMG004", "warning")
def containers_suit_efa(file: File) -> Iterator[Problem]:
    """A container that uses EFA needs the right libraries inside and shared memory from outside.

    In an image the EFA installer must not build kernel modules (`--skip-kmod`), and the InfiniBand libraries and HPC-X
    of NVIDIA's images must be removed. From outside, several GPUs need shared memory (`--shm-size` or `--ipc=host`; a
    note where the command starts no data loader workers), and libfabric needs huge pages (`hugepages-2Mi`) or
    FI_EFA_USE_HUGE_PAGE=0.

    Why: the build fails on an unknown kernel; NCCL loads the wrong transport; data loaders stop with a bus error when
    the 64 MiB of /dev/shm that Docker gives are full.

    Fix: see the finding.

    Source: Dockerfiles and manifests of awsome-distributed-ai; EKS user guide, EFA.

    When to ignore: the nodes have huge pages configured, or the image is not used with EFA.
    """
    problems = [p for script in file.scripts for p in [*_installer(file, script), *_docker_run(file, script)]]
    yield from once([*problems, *_huge_pages(file)])


def _installer(file: File, script: ShellScript) -> Iterator[Problem]:
    if script.kind != "dockerfile":
        return
    installs = [command for command in script.commands if command.program == "efa_installer.sh"]
    for command in installs:
        if not any("skip-kmod" in word.value or word.value == "-k" for word in command.words):
            yield problem(
                command.words[0],
                "the EFA installer builds kernel modules, which an image does not use",
                "add --skip-kmod",
                level="info",
                edit=Edit(_after(command.words[0].span), " --skip-kmod"),
                why=reasons.KERNEL_MODULES,
            )
    base = next((w for c in script.commands if c.program == "FROM" for w in c.words[1:2]), None)
    nvidia = base is not None and re.match(r"nvcr\.io/nvidia/(pytorch|nemo|tensorflow|jax)", base.value)
    cleaned = re.search(r"hpcx|libmlx5|ibverbs", file.text)
    if installs and base is not None and nvidia and not cleaned:
        yield problem(
            base,
            "this image contains HPC-X and InfiniBand libraries, which NCCL may load instead of EFA's",
            "remove them before the EFA installer: rm -rf /opt/hpcx, apt-get remove libmlx5-1 libibverbs1",
            level="info",  # harmless while the plugin comes first in LD_LIBRARY_PATH
            why=reasons.OTHER_TRANSPORT,
        )


def _after(span: Span) -> Span:
    return Span(span.end_line, span.end_column, span.end_line, span.end_column)


def _docker_run(file: File, script: ShellScript) -> Iterator[Problem]:
    for command in script.commands:
        words = [word.value for word in command.words]
        if command.program != "docker" or "run" not in words[:3] or "gpus" not in command.options:
            continue
        shared = {"shm_size", "ipc"} & command.options.keys() or any("/dev/shm" in word for word in words)
        started = [c for c in script.commands if c.runner is command]
        trains = [
            c for c in started if c.program in ("torchrun", "accelerate", "deepspeed") and "help" not in c.options
        ]
        one = _ONE_GPU.fullmatch(command.options["gpus"].value) or any(_one_process(c) for c in trains)
        if trains and not one and not shared and not _may_hold_options(file, command):
            workers = [n for c in trains for n in _workers(c)]
            yield problem(
                command.options["gpus"],
                "a container for several GPUs with Docker's default /dev/shm of 64 MiB, through which the workers of a "
                "data loader pass their batches",
                "add --ipc=host, or --shm-size=16g",
                # Without workers nothing of the data goes through it, and NCCL may find room.
                level=None if any(n > 0 for n in workers) else "info",
                why=reasons.FULL_SHARED_MEMORY,
            )


def _may_hold_options(file: File, command: Command) -> bool:
    """Whether a word of `docker run` that the file does not show may be options: not the value of an option, a word
    that begins with other text, or the image."""
    for before, word in pairwise(command.words):
        is_value = _TAKES_A_VALUE.fullmatch(before.value) is not None
        is_image = word is command.words[-1] and (_IMAGE.match(word.text) or _is_quoted(file, word))
        if not (word.known or is_value or is_image or _BEGINS.match(word.text)):
            return True
    return False


def _is_quoted(file: File, word: Value[str]) -> bool:
    """Whether a word stays one, whatever its variables hold."""
    line = file.lines[word.span.line - 1] if 0 < word.span.line <= len(file.lines) else ""
    return line[: word.span.column - 1].endswith('"') and "[" not in word.text


# An option of docker before its value: none that stands alone, such as --rm or -it.
_TAKES_A_VALUE = re.compile(
    r"-(?!-)(?![ditP]+$)\w|--(?!(rm|detach|interactive|tty|init|privileged|read-only|publish-all|no-healthcheck"
    r"|oom-kill-disable|sig-proxy|quiet|disable-content-trust)$)[a-z-]+"
)
_BEGINS = re.compile(r"[\w/.]|--?[\w-]+=")
_IMAGE = re.compile(r"\$\{?\w*(image|img|container)", re.IGNORECASE)
_ONE_GPU = re.compile(r"1|\W*device=\d+\W*")
_WORKERS = ("num_workers", "dataloader_num_workers", "workers", "num_dataloader_workers")


def _one_process(command: Command) -> bool:
    count = command.options.get("nproc_per_node") or command.options.get("num_processes")
    return count is not None and count.value == "1"


def _workers(command: Command) -> list[int]:
    given = [command.options[name].value for name in _WORKERS if name in command.options]
    return [int(value) for value in given if value.isdecimal()]


def _huge_pages(file: File) -> Iterator[Problem]:
    for pod in file.pods:
        for container in pod.containers:
            cards = container.limits.get("vpc.amazonaws.com/efa") or container.requests.get("vpc.amazonaws.com/efa")
            disabled = any(v.name == "FI_EFA_USE_HUGE_PAGE" and v.value.value == "0" for v in container.env)
            disabled = disabled or "FI_EFA_USE_HUGE_PAGE=0" in file.text
            if cards is None or known(cards) in (None, "0") or disabled:
                continue
            if "hugepages-2Mi" not in container.limits and "hugepages-2Mi" not in container.requests:
                yield problem(
                    cards,
                    "EFA cards without huge pages: libfabric requests them and may find none",
                    "add hugepages-2Mi: 5120Mi, or set FI_EFA_USE_HUGE_PAGE=0",
                    level="info",
                    why=reasons.NO_HUGE_PAGES,
                )
