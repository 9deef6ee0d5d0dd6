"""STO: what is deleted with a stack, and disk space for images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from trainwright.check import reasons
from trainwright.check.model import Cluster, File, Queue, Storage, Value, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines, table
from trainwright.spec.source import Span

_LOGS = re.compile(r"([Ll]og(s|ging)?|LOGS?)(?![a-z])")
_KEEPING = ("Retain", "Snapshot", "RetainExceptOnCreate")
_FILE_SYSTEMS = ("lustre", "openzfs", "ontap", "efs")
_WORDS = {
    "bucket": "bucket",
    "database": "database",
    "lustre": "file system",
    "openzfs": "file system",
    "efs": "file system",
}


@rule("STO007", "warning")
def data_outlives_the_stack(file: File) -> Iterator[Problem]:
    """What holds data should not be deleted with the stack or the cluster that created it.

    File systems and buckets are deleted with their stack unless their DeletionPolicy is Retain (or Snapshot). A file
    system that states no policy is a warning, and so are the checkpoints of a job on a scratch file system without a
    bucket. Notes are: a scratch file system, one whose policy says Delete (somebody wrote it), one that is filled from
    a bucket, OpenZFS, of which FSx takes a last backup, and a bucket, which CloudFormation deletes only when it is
    empty. Not reported are a Lustre file system that exports to a bucket (a link exports only with an
    AutoExportPolicy), a bucket for logs, and EFS with backups.

    Why: `delete-cluster` or a failed update deletes weeks of checkpoints; one of a 70B model is 920 GB.

    Fix: `DeletionPolicy: Retain`, or link a bucket.

    Source: CloudFormation, DeletionPolicy attribute; the prerequisite stacks of the reference architectures delete both
    file systems.

    When to ignore: the file system only holds copies.
    """
    for storage in file.all_storages if file.format != "terraform" else ():  # whose destroy is asked for by name
        ours = storage.kind != "bucket" or _holds_training(file, storage)
        if storage.existing is None and storage.kind in _WORDS and ours and not _exports(storage):
            yield from _deleted(file, storage)
    yield from _scratch_checkpoints(file)


def _holds_training(file: File, bucket: Storage) -> bool:
    """Whether a bucket is one of a cluster, by the rest of its template or by its name; a policy that is written for
    it is meant."""
    cluster = bool(file.clusters or file.launch_templates) or any(s.kind in _FILE_SYSTEMS for s in file.storages)
    named = bucket.name is not None and re.search(r"checkpoint|train|dataset|model", bucket.name.value, re.IGNORECASE)
    logs = _LOGS.search("\n".join(_lines(file, bucket)))
    return bucket.deletion_policy is None and not logs and (cluster or named is not None)


def _lines(file: File, bucket: Storage) -> list[str]:
    """A resource as it is written: its first line and those that are indented further."""
    first, *others = file.text.splitlines()[bucket.span.line - 1 :]
    indent = len(first) - len(first.lstrip())
    return [first, *takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > indent, others)]


def _exports(storage: Storage) -> bool:
    return any(link.exports for link in storage.links) or storage.export_path is not None


def _deleted(file: File, storage: Storage) -> Iterator[Problem]:
    policy = known(storage.deletion_policy)
    if storage.deletion_policy is not None and (policy is None or policy in _KEEPING):
        return
    if storage.kind == "database":
        return  # CloudFormation takes a snapshot of a database by itself; who writes Delete means it
    name = storage.mount.value if storage.mount is not None else storage.name.value if storage.name else "it"
    at = storage.deletion_policy or storage.mount or storage.span
    owner = "cluster" if file.clusters and file.format == "parallelcluster" else "stack"
    goes = f"this {_WORDS[storage.kind]} and its data are deleted with the {owner}"
    if storage.kind == "bucket":  # CloudFormation does not delete a bucket that holds something
        goes = "deleting the stack deletes this bucket, or fails while it holds data"
    meant = storage.deletion_policy is not None or (storage.kind == "lustre" and _is_scratch(storage))
    copied = bool(storage.links) or storage.import_path is not None
    mild = meant or copied or storage.kind in ("openzfs", "bucket")
    yield problem(at, f"{name}: {goes}", "set DeletionPolicy: Retain", level="info" if mild else None)


def _is_scratch(storage: Storage) -> bool:
    """Made for temporary data: by its deployment type, which is SCRATCH_1 where none is stated."""
    deployment = storage.deployment
    return deployment is None or (deployment.known and deployment.value.startswith("SCRATCH"))


def _scratch_checkpoints(file: File) -> Iterator[Problem]:
    for job in file.jobs:
        folder = known(job.checkpoint_dir)
        for storage in file.all_storages:
            mount = known(storage.mount)
            scratch = (known(storage.deployment) or "").startswith("SCRATCH")
            if (
                folder
                and mount
                and scratch
                and not _exports(storage)
                and (folder + "/").startswith(mount.rstrip("/") + "/")
            ):
                assert job.checkpoint_dir is not None
                yield problem(
                    job.checkpoint_dir,
                    f"{job.label}: checkpoints on {mount}, a scratch file system without a linked bucket",
                    "link a bucket to it, or use persistent-2",
                    why=reasons.ONE_COPY,
                )


_CONTAINER_WORDS = ("docker", "enroot", "pyxis")
_CACHES = ("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH")


@rule("STO008", "warning")
def images_have_room(file: File) -> Iterator[Problem]:
    """Container images need more space than a default root volume has.

    A training image unpacks to 20 GB and more, and import needs it twice. Enroot's cache and data directories belong on
    NVMe or on the shared file system: in variables, and in the lines of enroot.conf that a script writes (notes). Where
    containers are set up and nothing says so, the root volume needs 100 GiB or more; so does `disk_size` of a Terraform
    node group with 8 GPUs per node (reported below 50).

    Why: the root volume fills up, the node is drained, and the error names neither image nor disk. Images of
    training have 10 to 25 GB, and a managed node group's volume 20 GiB by default.

    Fix: enlarge the root volume, or move ENROOT_CACHE_PATH and ENROOT_DATA_PATH to /scratch or /fsx.

    Source: awslabs/awsome-distributed-ai issues 427, 438 and 781; EKS API reference, diskSize;
    awsome-distributed-ai (size of images).

    When to ignore: the images are small.
    """
    for cluster, queue in file.queues:
        yield from _small_root(cluster, queue)
        if file.format == "terraform" and cluster.platform == "eks" and not _LOCAL_DISKS.search(file.text):
            yield from _small_disk(queue)
    folders = tuple(table("storage")["root_folders"])
    told = [(env.name, env.value) for env in file.all_env if env.name in _CACHES and env.value.known]
    for name, value in (*told, *_configured(file)):
        if value.value.startswith(tuple(f"{f}/" for f in folders)) and not _is_elsewhere(file, value.value):
            yield problem(
                value,
                f"{name} is on the root volume ({value.value})",
                "put it on NVMe (/scratch/enroot) or on the shared file system (/fsx/enroot)",
                level="info",
            )
    for command in (c for script in file.scripts for c in script.commands):
        output = command.option("-o", "--output") if command.program == "enroot" else None
        if output is not None and output.value.startswith(tuple(f"{f}/" for f in folders)):
            what = f"the image is written to the root volume ({output.value})"
            yield problem(output, what, "write it to /fsx or NVMe", level="info")


# A line of enroot.conf that a script writes, in a here-document or by `echo`.
_LINE = re.compile(
    r"""^[ \t]*(?:(?:echo|printf)[ \t]+(?:-e[ \t]+)?["'])?(?P<name>ENROOT_(?:CACHE|DATA|TEMP)_PATH)[ \t]+"""
    r"""(?P<path>/(?:\$\([^)]*\)|[^\s"'\\])+)""",
    re.MULTILINE,
)
_NVME = ("/opt/dlami/nvme", "/opt/sagemaker")  # where AWS's images mount other disks


def _configured(file: File) -> Iterator[tuple[str, Value[str]]]:
    """The directories in the lines of enroot.conf that a shell script writes."""
    if file.format not in ("shell", "sbatch"):
        return
    for match in _LINE.finditer(file.text):
        column = match.start("path") - file.text.rfind("\n", 0, match.start("path"))
        line = file.text.count("\n", 0, match.start("path")) + 1
        span = Span(line, column, line, column + len(match["path"]))
        yield match["name"], Value(match["path"], span, match["path"])


def _is_elsewhere(file: File, path: str) -> bool:
    """Whether another disk is mounted at a folder, or it is a link, as far as the file says."""
    if path.startswith(tuple(f"{one}/" for one in _NVME)):
        return True
    parts = path.split("$")[0].rstrip("/").split("/")
    above = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    lines = [line for line in file.text.splitlines() if _MOVES.search(line) and not any(one in line for one in _CACHES)]
    return any(re.search(rf"(?<![\w./-]){re.escape(one)}(?![\w./-])", line) for one in above for line in lines)


_MOVES = re.compile(r"\bmount\b|\bln[ \t]+-|\bfstab\b|\bxfs\b|\bext4\b|\bbind\b|=")
_LOCAL_DISKS = re.compile(r"localStorage|RAID0|setup-local-disks|instance-store", re.IGNORECASE)  # images go to NVMe
_SMALLEST_DISK, _TRAINING_GPUS = 50, 8


def _small_disk(queue: Queue) -> Iterator[Problem]:
    """A node group that trains, with the disk of a small one."""
    need, size = table("storage")["container_root_gib"], known(queue.root_volume_gib)
    trains = any(type_.gpus >= _TRAINING_GPUS for _, type_ in machines(queue))
    if trains and queue.root_volume_gib is not None and size is not None and size < _SMALLEST_DISK:
        yield problem(
            queue.root_volume_gib,
            f"{queue.label}: {size} GiB of disk is too small for training images",
            f"write {need} or more",
            level="info",
        )


def _small_root(cluster: Cluster, queue: Queue) -> Iterator[Problem]:
    need, default = table("storage")["container_root_gib"], table("storage")["default_root_gib"]
    script = next((s for s in queue.scripts if any(w in s.source.value.lower() for w in _CONTAINER_WORDS)), None)
    wanted = known(cluster.containers) in ("docker", "enroot") or (
        script is not None and cluster.platform == "parallelcluster"
    )
    if not wanted or cluster.platform == "local":
        return
    if queue.root_volume_gib is not None:
        size = known(queue.root_volume_gib)
        if size is not None and size < need:
            yield problem(
                queue.root_volume_gib,
                f"{queue.label}: {size} GiB of root volume is too small for container images",
                f"write {need} or more, or move the images to NVMe or the shared file system",
                level="info" if script is not None else None,  # which may move them
            )
    elif script is not None:
        yield problem(
            script.source,
            f"{queue.label}: containers are set up on a root volume of the default size, at most {default} GiB",
            f"set the root volume to {need} GiB or more, unless the script moves the images elsewhere",
            level="info",
        )
