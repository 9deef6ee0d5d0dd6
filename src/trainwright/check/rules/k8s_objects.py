"""K8S: the objects around a training pod: indexed jobs, Ray jobs, Kueue's queues."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.job_sizes import once
from trainwright.check.model import File, Value
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_commands import commands_read_otherwise
from trainwright.check.rules.k8s_kueue import QUEUE_LABEL, covered_resources, gpus_of, misspelt_flavors, text_of
from trainwright.check.rules.k8s_mpi import mpi_ranks
from trainwright.check.rules.k8s_quotas import quotas
from trainwright.check.rules.k8s_ray import head_ports, replica_bounds, versions_of_ray
from trainwright.check.rules.k8s_ray_demand import ray_demand
from trainwright.check.rules.k8s_runtimes import runtime_of_other_kind
from trainwright.check.rules.k8s_torn import torn_namespaces
from trainwright.spec.source import Node

_INDEX = "JOB_COMPLETION_INDEX"
_READS = re.compile(rf"{_INDEX}|batch\.kubernetes\.io/job-completion-index")
_DEFAULT = re.compile(r":?-|[\"']\s*,")  # ${NAME:-0}, get("NAME", 0)
# A script that sets it itself, or asks whether it is there.
_DOES_WITHOUT = re.compile(
    rf"\b{_INDEX}=|-[nz]\s+[\"']?\$\{{?{_INDEX}|\[\[?\s+[\"']?\$\{{?{_INDEX}\}}?[\"']?\s+\]"
    rf"|(get|getenv)\(\s*[\"']{_INDEX}[\"']\s*\)|[\"']{_INDEX}[\"']\s+(not\s+)?in\b"
)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_WHOLE = "the API server refuses the whole object."
_NO_PODS = "no pod of the job is created."
_NODES = re.compile(r"--nnodes[=\s]+(\d+)(?![\d:])|--num_machines[=\s]+(\d+)")
# Words of pods that wait for each other.
_GROUP = re.compile(rf"WORLD_SIZE|MASTER_ADDR|nnodes|num_machines|rdzv|{_INDEX}")


@rule("K8S002", "error")
def jobs_and_queues_are_whole(file: File) -> Iterator[Problem]:
    """Job objects must give their pods a rank, release their GPUs, and fit their queue.

    Reported, as errors where nothing else is said:

    - a Job with more parallel pods than completions (a note; a warning where its pods wait for each other);
    - a Job whose launcher waits for more nodes than it has pods at once (a warning);
    - a Job without restartPolicy Never or OnFailure: the default is Always, which a Job may not have;
    - a Job that is not `completionMode: Indexed` and whose pods read JOB_COMPLETION_INDEX (a note where they have a
      default for it);
    - an MPIJob whose mpirun has fewer ranks than it has workers, or more than their slots (warnings);
    - a PyTorchJob with more than one Master (it may have none), or without a container named `pytorch` in a pod;
    - a RayJob with GPUs and without `shutdownAfterJobFinishes` (a note);
    - a Ray worker whose `num-gpus` is another number than it requests (a note for 0, or beside a comment), whose image
      has another Ray or Python in its tag than the head's, or with `minReplicas` above `maxReplicas` (a note);
    - a RayJob that asks for more workers with a GPU (`--num-workers 16 --use-gpu`) than its cluster has GPUs (a
      warning);
    - ports of a Ray head that equal each other, a default (10001 for Ray's clients, 8265 and 52365 of the dashboard)
      or one of the workers' (10002 to 19999);
    - a ClusterQueue of Kueue whose flavors list other resources than `coveredResources`, or in another order;
    - a job that does not fit the quota of its queue (where the file or its directory holds both), requests a GPU that
      the queue does not cover, selects nodes of none of its flavors, is outside the queue's namespace or misspells
      its name (warnings);
    - a TrainJob that does not name the kind of its runtime, which is no ClusterTrainingRuntime (a warning);
    - entries of a `namespaceSelector` that exclude each other;
    - the queue's label on the pods in the place of the job (a note).

    What a container runs is read as it is meant. Kubernetes replaces `$(NAME)`, not `$NAME` or `${NAME}`: reported
    without a shell for options of torchrun, accelerate, deepspeed and mpirun that are a number or an address, and for
    variables such as MASTER_ADDR and NODE_RANK, where NAME is JOB_COMPLETION_INDEX, is set by the training operator or
    is a variable of the same container. Behind `sh -c` the first word is the script, and further words are its
    parameters `$0 $1 …`. Without a shell, the first word is a program's name alone (`sleep infinity` is none), `&&` and
    `2>&1` are arguments, and `--lr 0.1` in one word is no option (warnings). The status of `python train.py | tee log`
    at the end of a job's script is that of tee (a warning).

    Why: without an index every pod is rank 0, or none. `ray start` refuses a port that is used twice. A RayCluster
    keeps its GPUs after the job has ended, at the price of the nodes. Kueue rejects the queue, or the job waits in it
    for ever.

    Fix: as the message says.

    Source: Kubernetes documentation, indexed jobs; KubeRay, RayJob; Ray 2.60, `ray start`; Kueue 0.14, webhook of
    ClusterQueue.

    When to ignore: a controller of your own completes the object.
    """
    # What a template or patch leaves out may be added to it.
    whole = not file.template and not any(pod.partial for pod in file.pods)
    for root in file.nodes if file.format == "kubernetes" else ():
        kind = text_of(root, "kind")
        if kind == "Job" and _is_batch(root):
            yield from _indexed(root)
        elif kind in ("RayJob", "RayCluster"):
            yield from _ray(file, root, kind)
            yield from ray_demand(file, root)
        elif kind == "ClusterQueue":
            yield from covered_resources(root)
            yield from torn_namespaces(root)
        yield from _label(root, kind)
        for spec in _job_specs(root, kind):
            yield from _pods_of_job(spec)
            if whole and kind != "JobSet":  # JobSet's own default is OnFailure
                yield from _no_restart_policy(spec)
        if kind == "PyTorchJob":
            yield from _pytorch_job(root, whole)
        elif kind == "TrainJob":
            yield from runtime_of_other_kind(file, root)
        elif kind == "MPIJob":
            yield from mpi_ranks(root)
    if file.format == "kubernetes":
        yield from once([*misspelt_flavors(file), *quotas(file)])
        yield from commands_read_otherwise(file)


def _is_batch(root: Node) -> bool:
    """Whether a Job is Kubernetes' own: Volcano has one too."""
    return text_of(root, "apiVersion").startswith("batch/")


def _job_specs(root: Node, kind: str) -> list[Node]:
    """The specs of the Jobs that an object makes."""
    paths = {"Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}
    replicated = root.get("spec", "replicatedJobs") if kind == "JobSet" else None
    specs = [one.get("template", "spec") for one in replicated.elements()] if replicated is not None else []
    specs += [root.get(*paths[kind])] if kind in paths and _is_batch(root) else []
    return [spec for spec in specs if spec is not None and spec.is_map]


def _pods_of_job(spec: Node) -> Iterator[Problem]:
    together, total = int_at(spec, "parallelism"), int_at(spec, "completions")
    if together is not None and total is not None and together.known and total.known and together.value > total.value:
        yield problem(
            total,
            f"parallelism is {together.value}, but a job with {total.value} completions starts {total.value} pods",
            f"write completions: {together.value}",
            why=f"ranks that are told of {together.value} pods wait for those that never start.",
            # Pods that do not wait for each other may be fewer.
            level="warning" if any(_GROUP.search(node.text) for node in spec.walk() if node.is_scalar) else "info",
        )
    elif together is not None and total is not None and together.known and total.known:
        yield from _never_together(spec, together, total)
    restart = text_at(spec, "template", "spec", "restartPolicy")
    if restart is not None and restart.value == "Always":
        said = "restartPolicy Always: Kubernetes rejects the job"
        yield problem(restart, said, "write Never or OnFailure", why=_WHOLE)


def _never_together(spec: Node, together: Value[int], total: Value[int]) -> Iterator[Problem]:
    """Ranks that wait for pods which start only when others have ended."""
    nodes = {int(a or b) for node in spec.walk() if node.is_scalar for a, b in _NODES.findall(node.text)}
    if 1 <= together.value < total.value and nodes == {total.value}:
        yield problem(
            together,
            f"the launcher waits for {total.value} nodes, and {together.value} of the pods run at once: no rank starts",
            f"write parallelism: {total.value}",
            why="a Job starts further pods when earlier ones have ended, and these wait for the others.",
            level="warning",
        )


def _no_restart_policy(spec: Node) -> Iterator[Problem]:
    """A policy that is written elsewhere is a misplaced key, which K8S006 reports."""
    pod = spec.get("template", "spec")
    misplaced = any(node.get("restartPolicy") is not None for node in spec.walk() if node.is_map)
    if pod is not None and pod.get("containers") is not None and not misplaced:
        yield problem(
            pod.key_span("containers"),
            "no restartPolicy: its default is Always, with which Kubernetes rejects a job",
            "add restartPolicy: Never (or OnFailure) beside containers",
            why=_WHOLE,
        )


def _pytorch_job(root: Node, whole: bool) -> Iterator[Problem]:
    """What the training operator rejects."""
    replicas = root.get("spec", "pytorchReplicaSpecs")
    for role, replica in replicas.items() if replicas is not None else ():
        count = int_at(replica, "replicas")
        if role == "Master" and count is not None and count.known and count.value > 1:
            yield problem(
                count, f"{count.value} masters: the training operator allows 1", "write 1, and the others as Worker",
                why=_NO_PODS,
            )  # fmt: skip
        listed = replica.get("template", "spec", "containers")
        names = [text_at(one, "name") for one in listed.elements()] if listed is not None else []
        first = names[0] if names else None
        if whole and first is not None and all(n is None or (n.known and n.value != "pytorch") for n in names):
            yield problem(
                first,
                "no container is named pytorch: the training operator rejects the job",
                "name the one that trains pytorch",
                why=_NO_PODS,
            )


def _indexed(root: Node) -> Iterator[Problem]:
    spec = root.get("spec")
    mode, pods = text_at(spec, "completionMode"), root.get("spec", "template", "spec")
    if spec is None or pods is None or (mode is not None and (mode.value == "Indexed" or not mode.known)):
        return
    if any(text_of(node, "name") == _INDEX for node in pods.walk() if node.is_map):
        return  # the pods are given a value
    texts = [_COMMENT.sub("", node.text) for node in pods.walk() if node.is_scalar]
    if any(_DOES_WITHOUT.search(text) for text in texts):
        return
    reads = [read for text in texts for read in _READS.finditer(text)]
    several = int_at(spec, "parallelism")
    fix = f"{'add' if mode is None else 'write'} completionMode: Indexed"
    if spec.get("completions") is None:
        fix += f", and add completions: {several.value if several is not None and several.known else 1}"
    if any(not _DEFAULT.match(read.string, read.end()) for read in reads):
        yield problem(
            mode or root.key_span("spec"),
            "the pods read JOB_COMPLETION_INDEX, which only an indexed job sets: no pod knows its rank",
            fix,
            why="without an index every pod is rank 0, or none.",
        )
    elif reads and several is not None and several.known and several.value > 1:
        yield problem(
            mode or root.key_span("spec"),
            "only an indexed job sets JOB_COMPLETION_INDEX: every pod uses the default",
            fix,
            level="info",
        )


def _ray(file: File, root: Node, kind: str) -> Iterator[Problem]:
    spec = root.get("spec", "rayClusterSpec") if kind == "RayJob" else root.get("spec")
    if spec is None or not spec.is_map:
        return
    groups = spec.get("workerGroupSpecs")
    workers = [one for one in groups.elements() if one.is_map] if groups is not None else []
    gpus = [gpus_of(worker.get("template", "spec"), first=True) for worker in workers]  # Ray runs in the first one
    for worker, amount in zip(workers, gpus, strict=True):
        stated = int_at(worker, "rayStartParams", "num-gpus")
        if stated is not None and stated.known and amount is not None and amount != stated.value:
            yield problem(
                stated,
                f"num-gpus is {stated.value}, and the worker requests {_gpus(amount)}",
                f'write "{amount}", or leave num-gpus out: KubeRay reads the limit',
                why="Ray places tasks by this number, whatever the pod has.",
                # 0 hides the GPUs from Ray on purpose, and a comment says what another number is for.
                level="info" if stated.value == 0 or _has_remark(file, stated.span.line) else None,
            )
    yield from head_ports(spec)
    yield from replica_bounds(workers)
    yield from versions_of_ray(spec, workers)
    stops = bool_at(root, "spec", "shutdownAfterJobFinishes")
    if kind == "RayJob" and any(gpus) and (stops is None or (stops.known and not stops.value)):
        yield problem(
            (stops.key or stops.span) if stops is not None else root.key_span("spec"),
            "the Ray cluster keeps its GPUs after the job has ended",
            "add shutdownAfterJobFinishes: true",
            level="info",
        )


def _has_remark(file: File, line: int) -> bool:
    """Whether a comment stands on a line or right above it."""
    return "#" in file.lines[line - 1] or (line > 1 and file.lines[line - 2].lstrip().startswith("#"))


def _gpus(amount: int) -> str:
    return f"{amount} GPU{'' if amount == 1 else 's'}"


def _label(root: Node, kind: str) -> Iterator[Problem]:
    """The queue's label on the pods of a job that has none itself."""
    if kind in ("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet") or text_at(
        root, "metadata", "labels", QUEUE_LABEL
    ):
        return
    spec = root.get("spec")
    for node in spec.walk() if spec is not None else ():
        label = node.get("metadata", "labels", QUEUE_LABEL) if node.is_map else None
        if label is not None and label.is_scalar:
            yield problem(
                label,
                f"the queue is named on the pods, not on the {kind}: Kueue does not queue the job as a whole",
                f"move {QUEUE_LABEL} to metadata.labels of the {kind}",
                level="info",  # pods may be queued one by one on purpose
            )
            return
