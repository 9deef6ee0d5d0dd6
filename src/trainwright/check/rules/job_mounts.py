"""JOB: what the command of a container reads and writes, against the container's mounts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.check.launches.job_sizes import once
from trainwright.check.model import Command, File, Job, Value
from trainwright.check.readers.arguments import by_meaning
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import table

Mount = tuple[str, str]  # outside, inside
_INSIDE = re.compile(r":(/[^:$`{}()]*)(:[a-zA-Z,]+)?$")
_ALONE = (
    "--rm",
    "-i",
    "-t",
    "-d",
    "-it",
    "-ti",
    "-itd",
    "--privileged",
    "--init",
    "--detach",
    "--interactive",
    "--tty",
)
_VARIABLE = re.compile(r"\$(\w+|\{\w+(\[[@*]\])?\}|[@*])")
_TARGET = re.compile(r"(?:^|,)(?:target|dst|destination)=(/[^,$`{}()]*)(?=,|$)")


@rule("JOB017", "error")
def container_mounts_what_it_reads(file: File) -> Iterator[Problem]:
    """A path on a shared file system that a container's command names must be mounted into the container.

    Mounts of pyxis (`--container-mounts`), of `docker run` and of pods are compared with the paths among the arguments
    of the command: a path below /fsx, /efs, /lustre and the like that no mount contains; a path of the host that the
    container has under another name (`/fsx/data:/data`, and the command reads /fsx/data). The first is a warning where
    other directories of that file system are mounted, else a note, as the second: the image may have the path. Where
    checkpoints go is JOB011's.

    Why: inside, the directory does not exist: every rank stops with "No such file or directory" after the nodes were
    allocated and the image was unpacked (16 p5.48xlarge cost 15 USD per minute); or a cache of 100 GB is written into
    the container, of which nothing is left.

    Fix: mount the file system at the path that the command uses, or use the path inside the container.

    Source: pyxis, `--container-mounts=SRC:DST`; Docker, bind mounts; Kubernetes documentation, volumes; prices of
    aws_prices.csv.

    When to ignore: enroot's system configuration mounts the path into every container.
    """
    if not file.template:
        yield from once(p for job in file.jobs if job.launch is not None for p in _job(job, job.launch))


def _job(job: Job, launch: Command) -> Iterator[Problem]:
    mounts = _mounts(job, launch)
    if not mounts:
        return
    ours = [(at, path) for at, path in _paths(job, launch) if not any(_under(path, inside) for _, inside in mounts)]
    for at, path in ours:
        hosts = [(outside, inside) for outside, inside in mounts if _under(path, outside) and outside != "/"]
        if hosts and not _under(path, "/home"):
            outside, inside = max(hosts, key=lambda one: len(one[0]))
            yield problem(
                at,
                f"{path} is a path of the host: the container has {outside} as {inside}",
                f"write {posixpath.normpath(posixpath.join(inside, posixpath.relpath(path, outside)))}",
                level=None if job.scheduler == "spec" else "info",
            )
            return
    missing = [(at, path) for at, path in ours if any(_under(path, root) for root in table("local_folders")["shared"])]
    if missing:
        at, path = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        yield problem(
            at,
            f"{path} is in none of the container's mounts ({', '.join(inside for _, inside in mounts[:3])}){more}",
            f"mount {path.split('/')[1] and '/' + path.split('/')[1]} into the container",
            # The image may have it; not where it is on the file system of which other directories are mounted.
            level="warning" if _has_siblings(path, mounts) else "info",
        )


def _has_siblings(path: str, mounts: list[Mount]) -> bool:
    """Whether the container gets other directories of the path's file system, each under its own name."""
    root = "/".join(path.split("/")[:2])
    below = [outside for outside, inside in mounts if _under(inside, root) and inside != root]
    return bool(below) and all(outside == inside for outside, inside in mounts if _under(inside, root))


def _mounts(job: Job, launch: Command) -> list[Mount]:
    """The mounts of the job's container; none where it has no container or the place of one in it is not known."""
    if job.pod is not None:
        container = next((c for c in job.pod.containers if c.span == job.span), None)
        if container is None or job.pod.kind in ("TrainJob", "values") or not all(p.known for p, _ in container.mounts):
            return []
        return [("", _clean(path.value)) for path, _ in container.mounts]
    if launch.runner is not None and launch.runner.program == "docker":
        return _of_docker(launch.runner)
    pairs = [_pair(mount) for mount in job.mounts] if job.image is not None else []
    return [pair for pair in pairs if pair is not None] if None not in pairs else []


def _of_docker(runner: Command) -> list[Mount]:
    mounts: list[Mount] = []
    if any(_may_mount(before, word) for before, word in pairwise(runner.words[:-1])):
        return []
    for flag, word in zip(runner.words, [*runner.words[1:], None], strict=False):
        name, joined, text = flag.value.partition("=")
        if name not in ("-v", "--volume", "--mount"):
            continue
        given = Value(text, flag.span, known=flag.known) if joined else word
        mount = (_pair(given) if name != "--mount" else _long(given)) if given is not None else None
        if mount is None:
            return []
        mounts.append(mount)
    return mounts


def _may_mount(before: Value[str], word: Value[str]) -> bool:
    """Whether a word of `docker run` before the image is a variable that may hold options, and no option's value."""
    takes = before.value.startswith("-") and "=" not in before.value and before.value not in _ALONE
    return not word.known and not takes and _VARIABLE.fullmatch(word.value) is not None


def _pair(given: Value[str]) -> Mount | None:
    """`outside:inside`; without its outside where a variable holds part of that, None where it may hold the rest."""
    if not given.known:
        match = _INSIDE.search(given.value)
        return ("", _clean(match[1])) if match is not None else None
    parts = given.value.split(":")
    return _clean(parts[0]), _clean(parts[1] if len(parts) > 1 else parts[0])


def _long(given: Value[str]) -> Mount | None:
    if not given.known:
        match = _TARGET.search(given.value)
        return ("", _clean(match[1])) if match is not None else None
    said = dict(part.partition("=")[::2] for part in given.value.split(","))
    inside = said.get("target") or said.get("dst") or said.get("destination") or ""
    return _clean(said.get("source") or said.get("src") or ""), _clean(inside)


def _clean(path: str) -> str:
    return posixpath.normpath(path) if path else ""


def _paths(job: Job, launch: Command) -> Iterator[tuple[Value[str], str]]:
    """Absolute paths among the arguments, but for the checkpoints', and in the environment of a pod."""
    checkpoints = by_meaning(launch.options).get("checkpoint_dir")
    for word in launch.words[1:]:
        text = word.value.partition("=")[2] if word.value.startswith("-") and "=" in word.value else word.value
        if checkpoints is not None and text == checkpoints.value:
            continue
        if word.known and text.startswith("/") and not any(mark in text for mark in "$*:, "):
            yield word, _clean(text)
    for variable in job.env if job.pod is not None else ():
        if variable.value.known and variable.value.value.startswith("/") and ":" not in variable.value.value:
            yield variable.value, _clean(variable.value.value)


def _under(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))
