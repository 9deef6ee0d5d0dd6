"""JOB: the image that a launcher or manifest runs, and the scripts and Dockerfile beside it that make it."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator

from trainwright.check.images import Build, ImageName, alike, builds_beside, dockerfile_of, image_name
from trainwright.check.images import squash_files_beside as squash_files
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import Container, File, Job, Pod, Value
from trainwright.check.registry import Problem, problem, rule

_FORMATS = ("sbatch", "shell", "kubernetes")
_KEEPS_NOTHING = ("emptyDir", "persistentVolumeClaim", "hostPath", "nfs", "csi")
_STARTED = re.compile(r"^[ \t]*(?:CMD|ENTRYPOINT)[ \t]+(\[[^\]]*\])", re.MULTILINE | re.IGNORECASE)
_EACH = re.compile(r"--nproc[-_]per[-_]node=(\d{1,3})")


@rule("JOB018", "warning")
def image_is_the_one_that_is_built(file: File) -> Iterator[Problem]:
    """The image of a job must be the one that the script and Dockerfile beside it make.

    A script of the same directory, or of the one above, builds, tags or pushes the image by name, but under another tag
    or, of an image in no public registry, another spelling; it writes another .sqsh file than the job starts; a volume
    is mounted over the directory that the Dockerfile copies the job's program to; the image starts more processes than
    the pod has GPUs.

    Why: the job runs yesterday's image, or none: a name that no registry has leaves the pod in ImagePullBackOff, with
    pauses that grow to 5 minutes, while its GPUs are allocated (8 H100 cost 55 USD per hour). A volume hides all
    that the image has at its path.

    Fix: write one name in both places; mount the volume beside the code.

    Source: Kubernetes documentation, images (ImagePullBackOff, 300 seconds) and volumes; Docker, `docker build --tag`;
    prices of aws_prices.csv.

    When to ignore: the image of that tag was pushed by somebody else.
    """
    if file.format not in _FORMATS or file.path == "<stdin>":
        return
    images = [c.image for pod in file.pods for c in pod.containers] + [job.image for job in file.jobs]
    named = [(image, image_name(image.value)) for image in images if image is not None]
    builds = builds_beside(file.path) if any(parts is not None for _, parts in named) else []
    yield from once(p for at, parts in named if parts is not None for p in _other_name(at, parts, builds))
    yield from once(p for image in images if image is not None for p in _other_file(file, image))
    yield from once(p for pod in file.pods for c in pod.containers for p in _image_of_pod(file, pod, c, builds))


def _is_own(image: ImageName, builds: list[Build]) -> bool:
    """Whether an image can be one's own: of no public registry, or one that a script here makes in that registry."""
    return image.private or any((b.image.registry, b.image.name) == (image.registry, image.name) for b in builds)


def _other_name(at: Value[str], image: ImageName, builds: list[Build]) -> Iterator[Problem]:
    if not _is_own(image, builds):
        return
    same = [b for b in builds if b.image.name == image.name]
    if same and image.tag and all(b.image.tag for b in same) and image.tag not in {b.image.tag for b in same}:
        other = same[-1]
        yield problem(
            at,
            f"the tag is {image.tag}, but {os.path.basename(other.script)}, line {other.line}, makes "
            f"{image.name}:{other.image.tag}",
            "write one tag in both",
            level="info",
        )
    near = [b for b in builds if not same and alike(b.image.name, image.name)]
    if near:
        yield problem(
            at,
            f"{image.name} is made by no script here; {os.path.basename(near[0].script)}, line {near[0].line}, makes "
            f"{near[0].image.name}",
            f"write {near[0].image.name} in both",
            level="info",
        )


def _other_file(file: File, image: Value[str]) -> Iterator[Problem]:
    """A .sqsh file of another name than the one that enroot writes."""
    name = posixpath.basename(image.value)
    if not name.endswith(".sqsh") or "$" in name:
        return
    written = [(posixpath.basename(output.value), output, script) for output, script in squash_files(file.path)]
    if not written or any("$" in base for base, _, _ in written) or name in {base for base, _, _ in written}:
        return
    for base, output, script in written:
        if alike(base.removesuffix(".sqsh"), name.removesuffix(".sqsh")):
            where = f"{os.path.basename(script)}, line {output.span.line}"
            what = f"the job starts {name}, but {where}, writes {base}"
            yield problem(image, what, "write one name in both", level="info")
            return


def _image_of_pod(file: File, pod: Pod, container: Container, builds: list[Build]) -> Iterator[Problem]:
    """What the Dockerfile of a container's image says, against the pod."""
    image = image_name(container.image.value) if container.image is not None else None
    jobs = [job for job in file.jobs if job.span == container.span]
    if image is None or not _is_own(image, builds) or not jobs:
        return
    dockerfile = dockerfile_of(file.path, image, builds)
    if dockerfile is not None:
        yield from _hidden(pod, container, jobs[0], dockerfile)
        yield from _more_processes(container, jobs[0], dockerfile)


def _hidden(pod: Pod, container: Container, job: Job, dockerfile: File) -> Iterator[Problem]:
    """A volume over the directory that the image has the program in."""
    workdir, copied = _copied(dockerfile)
    kinds = {volume.name.value: volume.kind for volume in pod.volumes}
    program = _program(job, container, workdir) or _own_program(job, container, dockerfile, workdir)
    for path, volume in container.mounts if program else ():
        hides = path.known and _under(program, path.value) and any(_under(program, target) for target in copied)
        if hides and kinds.get(volume) in _KEEPS_NOTHING and volume not in pod.prepared:
            yield problem(
                path,
                f"{path.value} hides {program}, which {os.path.basename(dockerfile.path)} copies into the image",
                "mount the volume at another path, or start the program from another one",
                level="info",
            )


def _program(job: Job, container: Container, workdir: str) -> str:
    """Where the image has the program that the job starts; empty where that is not certain."""
    if job.launch is None:
        return ""
    word = next((word for word in job.launch.words[1:] if word.value.endswith((".py", ".sh"))), None)
    if container.workdir is not None:
        workdir = container.workdir.value if container.workdir.known else ""
    moved = job.script is not None and any(command.program in ("cd", "git", "pushd") for command in job.commands)
    if word is None or not word.known or moved or (not workdir and not word.value.startswith("/")):
        return ""
    return posixpath.normpath(posixpath.join(workdir, word.value))


def _own_program(job: Job, container: Container, dockerfile: File, workdir: str) -> str:
    """Where the image has the program of its own command, which a container without one runs."""
    words = _own_command(dockerfile) if not job.commands and job.launch is None else []
    named = [word for word in words if word.endswith((".py", ".sh"))]
    known_place = workdir and container.workdir is None
    return posixpath.normpath(posixpath.join(workdir, named[0])) if named and known_place else ""


def _own_command(dockerfile: File) -> list[str]:
    """The words of the one CMD or ENTRYPOINT of an image's last stage, in the exec form."""
    last = re.split(r"^[ \t]*FROM[ \t]", dockerfile.text, flags=re.MULTILINE | re.IGNORECASE)[-1]
    started = _STARTED.findall(last)
    try:
        return [str(word) for word in json.loads(started[0])] if len(started) == 1 else []
    except ValueError:
        return []


def _copied(dockerfile: File) -> tuple[str, list[str]]:
    """The last stage's working directory, and the directories that files of the build are copied to."""
    workdir = ""
    copied: list[str] = []
    for command in (c for script in dockerfile.scripts for c in script.commands):
        words = command.words
        if command.program == "FROM":
            workdir, copied = "", []
        elif command.program == "WORKDIR" and len(words) > 1:
            workdir = posixpath.join(workdir, words[1].value) if words[1].known else ""
        elif command.program in ("COPY", "ADD") and len(words) > 2 and words[-1].known:
            target = posixpath.normpath(posixpath.join(workdir or "?", words[-1].value))
            copied += [] if any(word.value.startswith("--from") for word in words) else [target]
    return workdir, [target for target in copied if target.startswith("/")]


def _under(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path == folder or path.startswith(folder + "/")


def _more_processes(container: Container, job: Job, dockerfile: File) -> Iterator[Problem]:
    """The processes that the image's own command starts, where the pod states none."""
    gpus = [count for count in job.gpus_per_node if count.known]
    words = _own_command(dockerfile)
    if job.commands or job.launch is not None or not gpus or container.image is None:
        return
    match = _EACH.search(" ".join(words).replace("node ", "node="))
    if match is not None and int(match[1]) > gpus[0].value > 0 and not {"gloo", "cpu", "--cpu"} & set(words):
        count = gpus[0].value
        yield problem(
            gpus[0],
            f"the pod has {count} GPU{'s' if count > 1 else ''}, and the image starts {match[1]} processes "
            f"({os.path.basename(dockerfile.path)})",
            f"request {match[1]} GPUs, or start {count} process{'es' if count > 1 else ''}",
        )
