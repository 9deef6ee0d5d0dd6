"""IMG: images, boot scripts and the versions they pin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.catalog.version_numbers import find_version
from trainwright.catalog.versions import software_title
from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import Command, Container, File, ShellScript, Value
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.img_contradictions import contradictions
from trainwright.check.rules.img_unused import unused_versions

if TYPE_CHECKING:
    from trainwright.check.facts import NodeFacts

_BRANCH = re.compile(
    r"(?:raw\.githubusercontent\.com/[^/]+/[^/]+|github\.com/[^/]+/[^/]+/(?:raw|blob|archive|tree))"
    r"/(?:refs/heads/)?(main|master|HEAD|latest|develop)(?=[/.]|$)"
    r"|/releases/(latest)/download/"
)
_BUILDS = ("make", "cmake", "ninja", "configure", "pip", "pip3", "setup.py", "autogen.sh", "bazel", "go", "cargo")
_BRANCHES = {"main", "master", "develop", "HEAD", "latest"}
_VERSION_NAME = re.compile(r"v?\d+(\.\d+)+(-\d+|-aws|\.?(a|b|rc|post)\d+)*")
_SHELLS = ("sh", "bash", "zsh", "python", "python3", "sudo")
_RUN_AS_IS = re.compile(r"\.(sh|bash|py|patch|whl|deb|rpm|run)(\?|$)")
_TRAINING = re.compile(
    r"cuda|nccl|torch|tensorflow|\bjax|\befa\b|nvidia|nvcr\.io|openmpi|deepspeed|neuron|rocm|megatron|horovod",
    re.IGNORECASE,
)
TRAINING_KINDS = ("PyTorchJob", "MPIJob", "TFJob", "JobSet", "TrainJob", "RayCluster", "RayJob")
_OFFICIAL = {
    "ubuntu", "debian", "python", "alpine", "centos", "rockylinux", "almalinux", "fedora", "amazonlinux", "golang",
    "node", "busybox", "rust", "openjdk", "buildpack-deps", "gcc",
}  # fmt: skip
_VERSION_IN_NAME = re.compile(r"[a-z]\d{2,}$|\d+\.\d+|\d+-\d+$")  # manylinux-cuda116: its name is its version
_LATEST = re.compile(r":latest$")


@rule("IMG002", "warning")
def sources_are_pinned(file: File) -> Iterator[Problem]:
    """What nodes and images download and build must be pinned.

    A warning is `git checkout -b v1.2` after a clone: it creates a branch of that name at the newest commit, and does
    not go to the tag. All else is a note, because installers and keys have no version and the newest commit is often
    wanted: a boot script or download from a branch (`…/main/…`) or from `releases/latest`, and a `git clone` that is
    built without a tag or commit. Each is a different program tomorrow.

    Why: a node that is replaced at night comes up with software that nobody tested, unlike the nodes beside it.
    Replacement is normal: 419 unexpected interruptions in 54 days on 16,384 GPUs (Llama 3).

    Fix: name a tag or commit: `git clone --branch v2.27.7-1 …`, `raw.githubusercontent.com/owner/repo/<commit>/…`.

    Source: cluster templates and Dockerfiles of awsome-distributed-ai and others; The Llama 3 Herd of Models, table
    5.

    When to ignore: the repository is your own and its branch is frozen.
    """
    problems = list(_branches([script.source for script in file.boot_scripts]))
    problems += [p for script in file.scripts for p in [*_downloads(script), *_clones(script)]]
    yield from once(problems)


def _branches(sources: list[Value[str]]) -> Iterator[Problem]:
    """Boot scripts from a branch: one finding per branch of a repository, at the first of its scripts."""
    places: dict[str, list[Value[str]]] = {}
    for source in sources:
        match = _BRANCH.search(source.value)
        if match is not None:
            places.setdefault(source.value[: match.end()], []).append(source)
    for first, *others in places.values():
        lines = sorted({one.span.line for one in others} - {first.span.line})
        more = f" (and on line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))})" if lines else ""
        yield from (replace(p, message=p.message + more) for p in _mutable(first, "boot script", "info"))


def _mutable(source: Value[str], what: str, level: Level | None = None) -> Iterator[Problem]:
    match = _BRANCH.search(source.value)
    if match is not None:
        yield problem(
            source,
            f"the {what} comes from {match[1] or match[2]}, which changes without notice",
            "name a tag or a commit in the address",
            level=level,
        )


def _downloads(script: ShellScript) -> Iterator[Problem]:
    """Only what is run or built as downloaded: of other scripts' downloads most are data."""
    if script.kind == "dockerfile" and not is_training(script):
        return
    for command, following in zip(script.commands, [*script.commands[1:], None], strict=False):
        if command.program not in ("curl", "wget", "ADD"):
            continue
        piped = following is not None and following.program in _SHELLS and following.span.line == command.span.end_line
        for word in command.words[1:]:
            if script.kind == "dockerfile" or piped or _RUN_AS_IS.search(word.value):
                yield from _mutable(word, "download", "info")  # most are installers


def _clones(script: ShellScript) -> Iterator[Problem]:
    """Clones that are built in an image or a set-up script."""
    if _launches(script) if script.kind != "dockerfile" else not is_training(script):
        return
    for index, command in enumerate(script.commands):
        if command.program != "git" or _verb(command) != "clone":
            continue
        later = script.commands[index + 1 :]
        if any(one.program in _BUILDS or one.words[-1].value.endswith("setup.py") for one in later if one.words):
            for one in _unpinned_clone(command, later):
                yield replace(one, level="info") if command.conditional else one  # an older clone may be used


def _verb(command: Command) -> str:
    """`checkout` of `git -C folder -c key=value checkout v1`."""
    words = [word.value for word in command.words[1:]]
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-C", "-c") else words[1:]
    return words[0] if words else ""


def _unpinned_clone(clone: Command, later: list[Command]) -> Iterator[Problem]:
    branch = clone.options.get("branch") or clone.options.get("b")
    if branch is not None and branch.value and branch.value not in _BRANCHES:
        return
    verbs = list(_verbs_before_the_next_clone(later))
    for verb, command in verbs:
        if verb in ("reset", "switch", "submodule", "fetch"):
            return
        new = command.options.get("b") or command.options.get("B")
        if verb == "checkout" and new is not None and _has_start_point(command, new):
            return
        if verb == "checkout" and new is not None and not _VERSION_NAME.fullmatch(new.value):
            break
        if verb == "checkout" and new is not None and not _OWN_BRANCH & {verb for verb, _ in verbs}:
            yield _branch_for_a_tag(clone, new)
        if verb == "checkout":
            return
    address = next((w for w in clone.words if "://" in w.value or w.value.startswith("git@")), clone.words[0])
    if address.span.line < clone.span.line:
        return  # a variable: whoever builds it chooses the repository
    yield problem(
        address,
        "a git clone without a tag or commit is built: every build may differ",
        "add --branch <tag>, or `git checkout <commit>` after it",
        level="info",  # the newest commit is often wanted
        why=reasons.NEWEST_COMMIT,
    )


# What moves a new branch to another commit, or shows that it is one's own.
_OWN_BRANCH = {"reset", "pull", "merge", "rebase", "cherry-pick", "am", "apply", "commit", "push", "tag"}


def _verbs_before_the_next_clone(later: list[Command]) -> Iterator[tuple[str, Command]]:
    for command in later:
        verb = _verb(command) if command.program == "git" else ""
        if verb == "clone":
            return
        if verb:
            yield verb, command


def _branch_for_a_tag(clone: Command, branch: Value[str]) -> Problem:
    name = branch.value
    shallow = "depth" in clone.options
    return problem(
        branch.key or branch.span,
        f"git checkout -b creates a branch {name} at the current commit; it does not check out a tag",
        f"clone with --branch {name}, if the repository has that tag"
        if shallow
        else f"leave -b out, if {name} is a tag of the repository",
        why=reasons.BRANCH_NAMED_AS_A_TAG,
    )


def _has_start_point(command: Command, branch: Value[str]) -> bool:
    """Whether `git checkout -b name start` names the commit or tag to start from, before or after the name."""
    words = [word.value for word in command.words]
    given = [word for word in words[words.index("checkout") + 1 :] if not word.startswith("-") and word != branch.value]
    # `git checkout -b v1 v1` starts at the tag of that name.
    return words.count(branch.value) > 1 or any(word not in _BRANCHES for word in given)


def _launches(script: ShellScript) -> bool:
    return any(command.program in ("srun", "torchrun", "sbatch", "mpirun") for command in script.commands)


@rule("IMG003", "warning")
def images_are_pinned(file: File) -> Iterator[Problem]:
    """An image needs a fixed tag, and one version per piece of software.

    `latest`, or no tag at all, is a different image after the next push. One file that pins the EFA installer, NCCL or
    the plugin to two versions builds with one and documents the other; of the installer and the plugin, versions of two
    stages are a note, where one stage copies from the other or starts from it; of NCCL this is a variable that nothing
    reads, beside another version that is built (a note: a script that the build runs may read it). `latest` is a note:
    on public files it was meant in many cases.

    Why: nodes of one job pull different images, and a result cannot be reproduced: `nvcr.io/nvidia/pytorch` has 12
    releases per year, each with another torch and NCCL.

    Fix: name a version or a digest (`@sha256:…`), and pin each piece of software once.

    Source: version drift in awsome-distributed-ai; its own guide forbids `latest`, and five files use it; NVIDIA,
    PyTorch release notes.

    When to ignore: the image is built and used on the same machine, and never pushed.
    """
    images = {image.value: image for image in reversed(list(_images(file)))}  # the first place of each
    for image in images.values():
        yield from once(replace(p, level="info") for p in _unpinned(image))  # who builds it often wants the newest
    yield from once(contradictions(file))
    yield from once(unused_versions(file))


def _images(file: File) -> Iterator[Value[str]]:
    for pod in file.pods:
        if pod.kind in TRAINING_KINDS or any(_has_accelerator(container) for container in pod.containers):
            yield from (c.image for c in pod.containers if c.image is not None)
    for job in file.jobs:
        if job.image is not None and job.scheduler != "kubernetes":
            yield job.image
    for script in file.scripts:
        if script.kind == "dockerfile" and not is_training(script):
            continue
        stages: set[str] = {"scratch"}
        for command in script.commands:
            words = [w for w in command.words[1:] if not w.value.startswith("--")]
            if command.program == "FROM" and words:
                if words[0].value not in stages:
                    yield words[0]
                if len(words) > 2 and words[1].value.lower() == "as":
                    stages.add(words[2].value)


def _unpinned(image: Value[str]) -> Iterator[Problem]:
    text = image.value
    name = text.rsplit("/", 1)[-1]
    if (
        text.endswith((".sqsh", ".sif", ".squashfs"))
        or text.startswith(("/", "./", "~"))
        or re.search(r"@sha256:|\{\{|<|>|^__\w+__$|\b(YOUR|MY)[_-]|\byour-|/\d+\.\d+(\.\d+)?/", text)
        or ("/" not in text and name.partition(":")[0] not in _OFFICIAL)  # built on this machine
    ):
        return
    if _LATEST.search(text):
        yield problem(image, f"the image {text} changes with every push", "name a version or a digest")
    elif (
        image.known
        and not _VERSION_IN_NAME.search(name)
        and name
        and ":" not in name
        and not text.startswith("$")
        and not name.startswith("$")
    ):
        yield problem(image, f"the image {text} has no tag, which means latest", "name a version or a digest")


def is_training(script: ShellScript) -> bool:
    """Whether a Dockerfile is about accelerators or training; a folder holds others too."""
    return _TRAINING.search(script.text) is not None


def _has_accelerator(container: Container) -> bool:
    return any(re.search(r"/(gpu|neuron|efa|gaudi|mig-)", name) for name in {**container.requests, **container.limits})


@rule("IMG003", "warning", needs="node")
def pins_match_the_node(file: File, node: NodeFacts) -> Iterator[Problem]:
    """The versions that an image pins should be those of the node.

    Why: the EFA driver of the node and the libfabric of the image are tested together; with versions far apart, NCCL
    falls back to TCP, with 100 instead of 3,200 Gbps on p5.48xlarge.

    Fix: build the image with the node's version, or update the node.

    Source: efa-versions.py of awsome-distributed-ai compares the two.

    When to ignore: the combination was measured at full bandwidth.
    """
    for pin in file.pins:
        here = node.version(pin.software)
        pinned, present = find_version(pin.version.value), find_version(here or "")
        if pinned is not None and present is not None and pinned.numbers[:2] != present.numbers[:2]:
            yield problem(
                pin.version,
                f"{software_title(pin.software)} {pin.version.value} here, {here} on this node",
                "use one version on both sides",
            )
