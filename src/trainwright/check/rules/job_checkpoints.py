"""JOB: where and when checkpoints are written."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import multi_node, once
from trainwright.check.launches.launchers import is_python
from trainwright.check.launches.model_names import published
from trainwright.check.launches.trainers import is_trial, trainer_of
from trainwright.check.model import Command, Container, File, Job, Pod, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_arrays import shared_by_tasks
from trainwright.check.rules.job_per_node import different_directories
from trainwright.check.tables import table

# A cluster with InfiniBand, accounts or modules is not ParallelCluster, and its /scratch is mostly shared.
_OTHER_SITE = re.compile(
    r"\bNCCL_NET=[\"']?IB\b|\bib\d\b|\bmlx\d_|^\s*#SBATCH\s+(--account|-A)\b|^\s*(module|ml)\s+(load|purge)\b",
    re.MULTILINE,
)
# Commands and options that bring what is written to another place.
_COPIES = {
    "cp",
    "mv",
    "rsync",
    "aws",
    "s5cmd",
    "gsutil",
    "gcloud",
    "azcopy",
    "rclone",
    "scp",
    "tar",
    "hf",
    "huggingface-cli",
    "sgather",
    "dcp",
    "s3cmd",
    "zip",
}
_COPYING = re.compile(rf"(?<![\w-])({'|'.join(sorted(_COPIES))})(?![\w-])")
_DESTINATION = re.compile(r"out|save|export|dst|dest|target|upload|push|hub")
_UPLOADS = re.compile(r"--(push_to_hub|hub_model_id|upload\w*|s3\w*|gcs\w*)\b|(s3|gs|hf|az|abfss?)://")
# Folders that a site may mount into every container.
_OF_SITE = ("/home", "/scratch", "/work", "/project", "/projects", "/data", "/mnt", "/shared", "/nfs", "/p", "/tmp")
_PASSING = {"emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected"}


@rule("JOB011", "error")
def checkpoints_survive(file: File) -> Iterator[Problem]:
    """Checkpoints must be written, and to storage that outlives the node.

    A directory on the node itself (/tmp, /scratch, NVMe), inside a container, or outside every mounted volume is lost
    with the node or the pod; /scratch is not reported where the file shows a site with InfiniBand, accounts or modules,
    where it is mostly shared, nor a directory that another command of the file copies. What may be no checkpoint is a
    note: the directory of a benchmark, of an evaluation, `--output_dir` of a program that is not known. An interval
    longer than the run never writes a checkpoint (a note). The checkpoints that are kept must fit the file system. The
    tasks of a job array that train with different values must not save to one place, unless one runs at a time
    (`--array=1-10%1`), nor the nodes of one job to several (`$RANDOM`, expanded by each of them): warnings. Of the
    array a single file is a note where the program is not at hand, or makes other paths of it; a directory is reported
    of trainers that are known, and where the program at hand saves below it under names that are the same for all
    tasks.

    Why: after a failure there is nothing to resume from. At 64 nodes one failure per day or two is normal.

    Fix: write to shared storage (/fsx/…, a persistent volume, s3://…), every 10 to 30 minutes of training.

    Source: FSDP launchers with checkpoint_freq 1000 in runs of 30 steps, and ./checkpoints in a pod
    (awsome-distributed-ai, FSDP).

    When to ignore: the run is a benchmark whose checkpoints nobody needs, or something else copies them to shared
    storage.
    """
    saving = [job for job in file.jobs if not _saves_nothing(job)]
    yield from once(p for job in saving for p in [*shared_by_tasks(file, job), *different_directories(file, job)])
    jobs = [job for job in saving if not _is_copied(job)]
    yield from once(p for job in jobs for p in [*_place_of(file, job), *_interval(job), *_room(file, job)])


def _saves_nothing(job: Job) -> bool:
    """Whether the trainer is asked for no checkpoints (`--save_strategy no` of Hugging Face)."""
    strategy = job.launch.options.get("save_strategy") if job.launch is not None else None
    return strategy is not None and strategy.value.strip("'\"").lower() in ("no", "none")


def _is_copied(job: Job) -> bool:
    """Whether another command of the script names the directory and brings it elsewhere."""
    path = job.checkpoint_dir.value.rstrip("/") if job.checkpoint_dir is not None else ""
    if not path or job.launch is None:
        return False
    others = [command for command in job.of_commands(_copying) if command is not job.launch]
    return any(path in word.value for one in others for word in one.words if _brings_elsewhere(one, path, job.launch))


def _copying(commands: list[Command]) -> list[Command]:
    """Commands that copy, and those that may: programs of Python, and what a trap runs at the end."""
    return [one for one in commands if one.program in _COPIES or one.program == "trap" or is_python(one.program)]


def _brings_elsewhere(command: Command, path: str, launch: Command) -> bool:
    if command.program == "trap":
        return any(_COPYING.search(word.value) for word in command.words)
    if not is_python(command.program):
        return True
    later = command.span.line > launch.span.end_line
    return later and any(_DESTINATION.match(name) and path not in v.value for name, v in command.options.items())


def _unless_kept(job: Job) -> Level | None:
    """A note where what is written may not be a checkpoint, or may be uploaded by the program."""
    options = job.launch.options if job.launch is not None else {}
    words = [word.value for word in job.launch.words] if job.launch is not None else []
    only_output = job.checkpoint_dir == options.get("output_dir") and job.checkpoint_steps is None
    trains = trainer_of(job) != "" and ("--do_train" in words or not {"--do_eval", "--do_predict"} & set(words))
    uploads = any(_UPLOADS.match(word) for word in words)
    return "info" if uploads or is_trial(job) or (only_output and not trains) else None


def _interval(job: Job) -> Iterator[Problem]:
    every, steps = known(job.checkpoint_steps), known(job.steps)
    if job.checkpoint_steps is None or not every or not steps or "unit" in job.extra:
        return
    if job.checkpoint_dir is None and not _is_torchtitan(job):
        return
    if every > steps:
        yield problem(
            job.checkpoint_steps,
            f"a checkpoint every {every:,} steps, but the run has {steps:,}: none is written before the end",
            f"save every {max(1, steps // 5):,} steps or so",
            level="info",  # short runs often want none
        )


def _is_torchtitan(job: Job) -> bool:
    """Whether the job is a configuration of torchtitan, which has a directory for checkpoints by default."""
    trainer = job.extra.get("trainer")
    return trainer is not None and trainer.value == "torchtitan"


def _place_of(file: File, job: Job) -> Iterator[Problem]:
    where = job.checkpoint_dir
    if where is None or "://" in where.value or where.value.startswith(("$", "~")):
        return
    runner = job.launch.runner if job.launch is not None else None
    if runner is not None and runner.program == "docker":
        return  # the path is the container's
    if job.scheduler == "kubernetes":
        yield from _in_pod(job, where)
    elif job.scheduler == "spec":
        yield from _in_spec(file, job, where)
    elif job.image is not None and job.mounts:
        yield from _in_container(job, where)
    elif multi_node(job) and (
        _node_local(where.value) or (_node_local(where.value, "usually") and not _OTHER_SITE.search(file.text))
    ):
        certain = _node_local(where.value)
        yield problem(
            where,
            f"{where.value} is on each node's local disk{'' if certain else ' where ParallelCluster created it'}: "
            "the other nodes do not see the checkpoint, and it is lost with its node",
            "write to a file system that all nodes share",
            level=_unless_kept(job) if certain else "info",
        )


def _node_local(path: str, how_sure: str = "always") -> bool:
    return any(_under(path, local) for local in table("local_folders")[how_sure])


def _under(path: str, folder: str) -> bool:
    clean = posixpath.normpath(path)
    return clean == folder.rstrip("/") or clean.startswith(folder.rstrip("/") + "/")


def _in_pod(job: Job, where: Value[str]) -> Iterator[Problem]:
    pod = job.pod
    container = next((c for c in pod.containers if c.span == job.span), None) if pod is not None else None
    if pod is None or container is None or pod.kind == "TrainJob":
        return
    path = where.value
    if not path.startswith("/"):
        workdir = container.workdir
        if workdir is None:
            yield from _relative_in_pod(pod, container, where)
        if workdir is None or not workdir.known:
            return
        path = posixpath.join(workdir.value, path)
    if any(not mount.known for mount, _ in container.mounts):
        return
    kinds = {volume.name.value: volume.kind for volume in pod.volumes}
    holding = [(mount.value, name) for mount, name in container.mounts if _under(path, mount.value)]
    if not holding:
        yield problem(
            where,
            f"{where.value} is inside the container, in no volume: the checkpoint is lost with the pod",
            "mount a persistent volume and write there",
            level=_unless_uploaded(job),
        )
        return
    name = max(holding, key=lambda one: len(one[0]))[1]
    others = any(name == mount for other in pod.containers if other is not container for _, mount in other.mounts)
    if kinds.get(name) == "emptyDir" and not others:
        yield problem(
            where,
            f"{where.value} is in the emptyDir volume {name!r}: the checkpoint is lost with the pod",
            "use a persistent volume",
            level=_unless_uploaded(job),
        )


def _unless_uploaded(job: Job) -> Level | None:
    """Less than an error where the pod has one copy: what it writes may be uploaded at its end."""
    return _unless_kept(job) if multi_node(job) else "info"


def _relative_in_pod(pod: Pod, container: Container, where: Value[str]) -> Iterator[Problem]:
    """A directory below the image's working directory, safe only on a persistent volume."""
    kinds = {volume.name.value: volume.kind for volume in pod.volumes}
    if where.known and all(kinds.get(name, "?") in _PASSING for _, name in container.mounts):
        yield problem(
            where,
            f"{where.value} is in the image's working directory, and the pod has no persistent volume",
            "mount a persistent volume and write there",
            level="info",  # the program may upload what it writes
        )


def _in_container(job: Job, where: Value[str]) -> Iterator[Problem]:
    """Under pyxis only what --container-mounts names is outside the container."""
    if not where.known or not where.value.startswith("/") or not all(mount.known for mount in job.mounts):
        return
    inside = [[*mount.value.split(":"), mount.value][1] for mount in job.mounts]
    if not any(_under(where.value, target) for target in inside):
        yield problem(
            where,
            f"{where.value} is in none of the container's mounts: the checkpoint is lost when the container ends",
            f"write below {inside[0]}, or mount the directory",
            level="info" if _of_site(where.value) else _unless_kept(job),
        )


def _of_site(path: str) -> bool:
    """Whether a site may mount the directory into every container, as enroot's settings allow."""
    return any(_under(path, folder) for folder in (*_OF_SITE, *table("local_folders")["shared"]))


def _in_spec(file: File, job: Job, where: Value[str]) -> Iterator[Problem]:
    cluster = next((c for c in file.clusters if job.queue in c.queues), None)
    if cluster is None or cluster.platform == "local" or not where.value.startswith("/"):
        return
    holding = [s for s in cluster.storages if s.mount is not None and _under(where.value, s.mount.value)]
    if any(storage.kind == "nvme" for storage in holding):
        yield problem(
            where,
            f"{where.value} is on the nodes' NVMe disks: the checkpoint is lost with the node",
            "write to the shared file system",
        )
    elif not holding and not _under(where.value, "/home"):
        yield problem(
            where,
            f"no file system of the spec is mounted at {where.value}: it would be on each node's local disk",
            "write below one of: " + ", ".join(s.mount.value for s in cluster.storages if s.mount is not None)
            if cluster.storages
            else "add a lustre file system under storage",
        )


def _room(file: File, job: Job) -> Iterator[Problem]:
    """Adam's state is 12 bytes per parameter (weights and two moments in fp32)."""
    keep, where, model = known(job.checkpoint_keep), job.checkpoint_dir, job.model
    cluster = next((c for c in file.clusters if job.queue in c.queues), None)
    name = known(model.name) if model is not None else None
    if job.checkpoint_keep is None or not keep or where is None or cluster is None or not name:
        return
    shape = published([name])
    holding = [s for s in cluster.storages if s.mount is not None and _under(where.value, s.mount.value)]
    room = known(holding[0].capacity_gib) if holding else None
    if shape is None or not room:
        return
    from trainwright.train.models.shape import parameter_count

    each = 12 * parameter_count(shape) / 2**30
    if keep * each > room:
        yield problem(
            job.checkpoint_keep,
            f"{keep} checkpoints of {each:,.0f} GiB are {keep * each:,.0f} GiB, but {where.value} has {room:,.0f}",
            f"keep {max(1, int(room // each))}, or make the file system larger",
        )
