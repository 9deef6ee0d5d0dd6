"""K8S: training pods: EFA cards, shared memory, secrets, volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.version_numbers import find_version, parse_version
from trainwright.check.launches.job_sizes import multi_node, once, type_of
from trainwright.check.model import Container, File, Job, Pod, Value, known
from trainwright.check.readers.arguments import meanings
from trainwright.check.readers.kubernetes_pods import quantity
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.k8s_refused import AS_WRITTEN, why_refused
from trainwright.check.rules.sec_secrets import is_secret

GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
_EXTENDED = (GPU, EFA, "aws.amazon.com/neuron")
_TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.+/=-]{20,}")
_EXAMPLE = re.compile(r"your|change|replace|example|placeholder|todo|x{3}|\.\.\.|^[\W_]*$", re.IGNORECASE)
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "WANDB_API_KEY")
_EFA_PLUGIN = re.compile(r"aws-efa-k8s-device-plugin:v?(\d[\w.]*)")
_PAUSE = re.compile(r"(^|/)pause(:|@|$)")
_OPEN = re.compile(r"[${}<>]")  # a template's name for something else
_P6_NEEDS = "0.5.6"
# Kinds whose pods are the ranks of one job, and what tells NCCL to leave the cards alone.
_GROUPS = ("PyTorchJob", "MPIJob", "TrainJob", "HyperPodPyTorchJob")
_OTHER_NETWORK = {"NCCL_NET": ("socket",), "NCCL_NET_PLUGIN": ("none",), "FI_PROVIDER": ("tcp", "sockets")}
_LEAST_BYTES = 2**20  # of a volume that is meant to hold anything
_TRAINING_CARDS = 4  # from p4d up the network is bought for training; with one card, EFA is a choice


@rule("K8S001", "warning")
def pods_are_ready_to_train(file: File) -> Iterator[Problem]:
    """A training pod needs EFA cards, shared memory, secrets from a Secret, and the volumes it declares.

    Pods of several nodes request EFA cards beside their GPUs; extended resources have equal requests and limits;
    several GPUs in a pod need a Memory-backed emptyDir at /dev/shm, not above the memory limit (a note for TensorFlow
    and Horovod); a sizeLimit has a unit; tokens come from a Secret; a volume that is declared is mounted, and one that
    is mounted is declared; P6 needs an EFA device plugin of 0.5.6 or later; a container that starts several GPU
    processes requests GPUs.

    Why: without the cards NCCL falls back to TCP; Kubernetes rejects unequal amounts; a /dev/shm of 64 MiB that is full
    makes NCCL and data loaders fail with a bus error; a token in a manifest can be read by everybody who may read the
    job.

    Fix: see the finding; `trainwright submit` writes all of it.

    Source: EKS user guide, EFA; Kubernetes documentation, extended resources; awsome-distributed-ai.

    When to ignore: an admission webhook adds what is missing.
    """
    problems = [p for pod in file.pods if not _only_holds_nodes(pod) for p in _pod(file, pod)]
    problems += [p for job in file.jobs if job.scheduler == "kubernetes" for p in _cards(job)]
    yield from once(problems)


def _only_holds_nodes(pod: Pod) -> bool:
    """Whether the pod runs `pause`: it reserves nodes and runs nothing."""
    return any(c.image is not None and _PAUSE.search(c.image.value) for c in pod.containers)


def _pod(file: File, pod: Pod) -> Iterator[Problem]:
    """What is wrong with a pod; of a template or patch, what may be added to it is not asked for."""
    whole = not file.template and not pod.partial
    for container in pod.containers:
        yield from _tokens(container)
        yield from _plugin(pod, container)
        yield from _unequal(pod, container)
        if whole:
            yield from _amounts(pod, container)
            yield from _memory(pod, container)
            yield from _shared_memory(pod, container)
            yield from _undeclared(pod, container)
    yield from _sizes(pod)
    if pod.containers and whole:
        for volume in pod.volumes:
            if volume.name.value not in pod.mounted and volume.name.known:
                yield problem(
                    volume.name,
                    f"the volume {volume.name.value!r} is declared but mounted nowhere",
                    "mount or remove it",
                    level="info",
                )


def _undeclared(pod: Pod, container: Container) -> Iterator[Problem]:
    if pod.kind in ("TrainJob", "values") or any(not volume.name.known for volume in pod.volumes):
        return
    declared = {volume.name.value for volume in pod.volumes}
    for path, name in container.mounts:
        if name and name not in declared and path.known and not _OPEN.search(name):
            yield problem(
                path,
                f"{path.value} mounts the volume {name!r}, which the pod does not declare: Kubernetes rejects it",
                f"add it under volumes, or mount one of: {', '.join(sorted(declared))}"
                if declared
                else "add it under volumes",
                level="error" if pod.kind in AS_WRITTEN else "info",
                why=why_refused(pod.kind),
            )


def _cards(job: Job) -> Iterator[Problem]:
    type_ = type_of(job)
    if (
        type_ is None
        or type_.efa_cards < _TRAINING_CARDS
        or not multi_node(job)
        or job.efa_per_node
        or not job.gpus_per_node
        or _reaches_cards(job)
    ):
        return
    gpus = job.gpus_per_node[0]
    if known(gpus) == type_.gpus:
        cards = "card" if type_.efa_cards == 1 else "cards"
        yield problem(
            gpus,
            f"{gpus.value} GPUs on each of {known(job.nodes)} nodes, but none of the {type_.efa_cards} EFA {cards} "
            f"of {type_.name}: NCCL falls back to TCP",
            f"add {EFA}: {type_.efa_cards} beside it, in requests and limits; the nodes need EFA interfaces and the "
            "EFA device plugin",
            level=None if _trains_together(job) else "info",
            why="a pod sees only the EFA devices that it requests.",
        )


def _reaches_cards(job: Job) -> bool:
    """Whether the pods have the cards in another way (devices of the host, a resource claim), are patched, or are to
    use TCP."""
    pod = job.pod
    if pod is not None and (
        pod.partial or any(c.claims_devices or (c.privileged and pod.host_network) for c in pod.containers)
    ):
        return True
    return any(variable.value.value.lower() in _OTHER_NETWORK.get(variable.name, ()) for variable in job.env)


def _trains_together(job: Job) -> bool:
    """Whether the pods are ranks of one job. Replicas of a server or of a sweep do not talk to each other."""
    if job.pod is not None and job.pod.kind in _GROUPS:
        return True
    machines = meanings(job.launch).get("machines") if job.launch is not None else None
    return machines is not None and machines.value not in ("", "1")


def _amounts(pod: Pod, container: Container) -> Iterator[Problem]:
    for name in _EXTENDED:
        request, limit = container.requests.get(name), container.limits.get(name)
        empty = next((v for v in (limit, request) if v is not None and v.text in ("", "null", "~")), None)
        if empty is not None:
            if pod.kind != "values":  # where it is filled in by whoever installs the chart
                at = empty.key or empty.span
                said, why = f"{name} is empty: the container gets none", "Kubernetes reads an empty amount as 0."
                yield problem(at, said, "write the number", level="error", why=why)
            continue
        if request is not None and limit is None:
            said = f"{name} is requested but has no limit: Kubernetes rejects it"
            yield problem(request, said, "set the same limit", why=why_refused(pod.kind))


def _unequal(pod: Pod, container: Container) -> Iterator[Problem]:
    for name in _EXTENDED:
        request, limit = container.requests.get(name), container.limits.get(name)
        if request is None or limit is None or not (request.known and limit.known):
            continue
        if request.value != limit.value and request.text and limit.text:
            yield problem(
                request,
                f"{request.value} of {name} requested, limit {limit.value}: Kubernetes requires equal values",
                f"write the same number in both, {limit.value} or {request.value}",
                why=why_refused(pod.kind),
            )


def _memory(pod: Pod, container: Container) -> Iterator[Problem]:
    """What lies in /dev/shm counts as the container's memory."""
    name = next((volume for path, volume in container.mounts if path.value.rstrip("/") == "/dev/shm"), None)
    shared = next((v.size_limit for v in pod.volumes if v.name.value == name and v.medium is not None), None)
    limit = container.limits.get("memory")
    size, most = quantity(shared), quantity(limit)
    if shared is not None and limit is not None and size is not None and most is not None and most < size:
        yield problem(
            shared,
            f"/dev/shm may take {shared.value}, and the container's memory limit is {limit.value}: it counts as memory",
            f"raise the memory limit above {shared.value}, or write less here",
            level="info",  # few jobs fill it
        )


def _sizes(pod: Pod) -> Iterator[Problem]:
    """A limit without a unit is in bytes, and with an m in thousandths of one; 0 is none."""
    for volume in pod.volumes:
        size, bytes_ = volume.size_limit, quantity(volume.size_limit)
        if size is not None and bytes_ and bytes_ < _LEAST_BYTES and size.value[-1:] in "0123456789m":
            yield problem(
                size,
                f"a sizeLimit of {size.value} is {bytes_:g} bytes",
                f"write a unit: {size.value.rstrip('m')}Gi or {size.value.rstrip('m')}Mi",
                level="error",
                why="an amount without a unit is in bytes: what is written there fails or evicts the pod.",
            )


# Commands that start several processes on the GPUs of one pod, or data loaders with workers.
_SEVERAL = re.compile(
    r"nproc[_-]per[_-]node[=\s]+(?![\"']?1\b)\S|(?<!install )(?<![\w=-])deepspeed\s+(--\w|\S+\.py)|"
    r"accelerate\s+launch(?!.*num_processes[=\s]+1\b)|"
    r"mpi(run|exec)\b|horovodrun|"
    r"(tensor[_-]parallel[_-]size|-tp)[=\s]+[\"']?([2-9]|1\d)",
    re.IGNORECASE,
)
_LOADERS = re.compile(r"num.workers\W+[1-9]", re.IGNORECASE)
_SERVES = re.compile(r"serv|unicorn|dask|spark|celery|infer|\bapi\b", re.IGNORECASE)  # whose workers load no data
_TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(run|launch)")
_PYTHON = re.compile(r"^\s*(python|\S*/python)|jax", re.IGNORECASE)


def _several(pod: Pod, container: Container) -> bool:
    """Whether the container is seen to start processes that share memory. The training operator tells torchrun to start
    one for each GPU."""
    elastic = pod.kind == "PyTorchJob" and _TORCHRUN.search(container.runs) and "nproc" not in container.runs
    loads = _LOADERS.search(container.runs) is not None and _SERVES.search(container.runs) is None
    return bool(elastic) or loads or _SEVERAL.search(container.runs) is not None


_MOUNT_ONE = "mount an emptyDir with medium: Memory at /dev/shm"
_OTHER_TRAINERS = re.compile(r"tensorflow|horovod|tensorpack|(?<![a-z])tf[12]?[_.-]", re.IGNORECASE)


def _exchanges_elsewhere(container: Container) -> bool:
    """Whether NCCL is told to leave shared memory alone, or TensorFlow or Horovod is seen to run, and not torch: their
    data loaders are threads. An image may hold both, and the command says which is used."""
    if any(one.name == "NCCL_SHM_DISABLE" and one.value.value == "1" for one in container.env):
        return True
    image = container.image.value if container.image is not None else ""
    if "torch" in container.runs.lower():
        return False
    return bool(
        _OTHER_TRAINERS.search(container.runs) or (_OTHER_TRAINERS.search(image) and "torch" not in image.lower())
    )


def _shared_memory(pod: Pod, container: Container) -> Iterator[Problem]:
    gpus = container.limits.get(GPU) or container.requests.get(GPU)
    if gpus is None or not gpus.known or not gpus.value.isdecimal() or int(gpus.value) < 2 or pod.host_ipc:
        return
    if pod.kind in ("TrainJob", "values") or pod.kind.startswith("Ray"):  # KubeRay mounts /dev/shm in memory itself
        return
    several = _several(pod, container)
    certain = several and pod.kind in AS_WRITTEN and pod.kind != "TFJob" and not _exchanges_elsewhere(container)
    if not several and _PYTHON.search(container.runs):
        return  # one program, which shares memory with none
    places = {path.value.rstrip("/"): volume for path, volume in container.mounts}
    volume = next((v for v in pod.volumes if v.name.value == places.get("/dev/shm")), None)
    if "/dev/shm" not in places and "/dev" not in places:
        yield problem(
            gpus,
            f"{gpus.value} GPUs and no volume at /dev/shm: NCCL and data loaders have its default of 64 MiB, and fail "
            "when it is full",
            _mounted_there(pod),
            level=None if certain else "info",
            why="the processes of a pod exchange data there: a full /dev/shm ends them with a bus error.",
        )
    elif volume is not None and volume.kind == "emptyDir" and volume.medium is None:
        said, why = "the volume at /dev/shm is on disk, not in memory", "what ranks exchange is written to the disk."
        yield problem(volume.name, said, "add medium: Memory", why=why)


def _mounted_there(pod: Pod) -> str:
    """The fix: the volume may be declared already."""
    free = [v for v in pod.volumes if v.medium is not None and v.name.known and v.name.value not in pod.mounted]
    return f"mount the volume {free[0].name.value} at /dev/shm" if free else _MOUNT_ONE


def _tokens(container: Container) -> Iterator[Problem]:
    for variable in container.env:
        text = variable.value.value.strip()
        if variable.name in _TOKENS and text and not text.startswith(("$(", "<")) and not is_secret(variable):
            yield problem(
                variable.value,
                f"{variable.name} is written in the manifest, readable by everybody who may read the job",
                "read it from a Secret: valueFrom: {secretKeyRef: …}",
                # Most short words are filled in on the way to the cluster, or by whoever copies the example.
                level=None if _TOKEN.fullmatch(text) and not _EXAMPLE.search(text) else "info",
                why="whoever may read the object has the token.",
            )


def _plugin(pod: Pod, container: Container) -> Iterator[Problem]:
    image: Value[str] | None = container.image
    match = _EFA_PLUGIN.search(image.value) if image is not None else None
    version = find_version(match[1]) if match is not None else None
    on_p6 = any(value.value.startswith(("p6-", "p6e-")) for value in pod.instances)
    if image is not None and version is not None and on_p6 and version < parse_version(_P6_NEEDS):
        yield problem(
            image,
            f"the EFA device plugin {version} is older than P6, and may count other devices as EFA cards",
            f"use {_P6_NEEDS} or later, with /dev/infiniband mounted",
            level="info",
        )
