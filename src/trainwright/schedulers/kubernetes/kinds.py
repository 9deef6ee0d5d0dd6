"""The kinds of job a Kubernetes cluster may know: PyTorchJob, JobSet, TrainJob, RayJob, and MPIJob for collectives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.pod import (
    CODE_SHA256,
    CODE_URL,
    INSTANCE,
    Data,
    PodSettings,
    archive_mounts,
    code_address,
    labels,
    object_name,
    pod,
    resources,
    secrets,
    template,
    torchrun,
    unpack_command,
)
from trainwright.schedulers.kubernetes.ray import rayjob_spec
from trainwright.schedulers.torchrun import PORT, log_options, under_torchrun

NODES, QUEUE = "trainwright/nodes", "trainwright/queue"
KUEUE = "kueue.x-k8s.io/queue-name"  # Kueue suspends an object with this label until the queue admits all of its pods
TRAINJOB_RUNTIME = "torch-distributed"  # the name of Trainer's own; plans make one of this name
MPI_RANK = """\
export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
export MASTER_ADDR=$1 MASTER_PORT=$2
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class Kind:
    """One kind of job: how it is made and where the API keeps it."""

    group: str
    version: str
    plural: str
    build: Callable[[Launch, PodSettings], Data]
    pod_label: str  # the label by which a job's pods are found


def _head(kind: str, api: str, launch: Launch, settings: PodSettings) -> Data:
    meta = {
        "name": object_name(launch),
        "namespace": settings.namespace,
        "labels": labels(launch) | ({KUEUE: settings.kueue} if settings.kueue else {}),
        "annotations": {
            NODES: str(launch.nodes),
            QUEUE: launch.queue,
            **(settings.annotations if launch.requeue else {}),
        },
    }
    return {"apiVersion": api, "kind": kind, "metadata": meta}


def _gang(settings: PodSettings, pods: int) -> Data:
    """All pods or none: the operator makes the PodGroup and names its scheduler in every pod."""
    return {"schedulingPolicy": {"minAvailable": pods}} if settings.gang else {}


def pytorchjob(launch: Launch, settings: PodSettings) -> Data:
    """A Kubeflow PyTorchJob: the operator gives every pod its rank and the master's address."""
    command = torchrun(launch, "$(RANK)", "$(MASTER_ADDR)", "$(MASTER_PORT)")
    restart = "OnFailure" if launch.requeue else "Never"
    replica = {
        "restartPolicy": restart,
        "template": template(launch, settings, pod(launch, settings, "pytorch", command, restart)),
    }
    replicas: Data = {"Master": {"replicas": 1, **replica}}
    if launch.nodes > 1:
        replicas["Worker"] = {"replicas": launch.nodes - 1, **replica}
    # The operator counts the restarts of all containers together, and one fault ends a container on every node.
    retries = launch.retries * launch.nodes if launch.requeue else 0
    policy: Data = {"cleanPodPolicy": "None", "backoffLimit": retries}
    if launch.time is not None:
        policy["activeDeadlineSeconds"] = launch.time
    policy |= _gang(settings, launch.nodes)
    spec = {"nprocPerNode": str(launch.processes), "runPolicy": policy, "pytorchReplicaSpecs": replicas}
    return {**_head("PyTorchJob", "kubeflow.org/v1", launch, settings), "spec": spec}


def jobset(launch: Launch, settings: PodSettings) -> Data:
    """A JobSet with one indexed job: pod i is node i, and pod 0 has a name that resolves."""
    master = f"{object_name(launch)}-node-0-0.{object_name(launch)}"
    command = torchrun(launch, "$(JOB_COMPLETION_INDEX)", master, str(PORT))
    job: Data = {
        "parallelism": launch.nodes,
        "completions": launch.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,  # one lost pod means the whole set starts again, together
        "template": template(launch, settings, pod(launch, settings, "node", command, "Never")),
    }
    failures: Data = {"maxRestarts": launch.retries if launch.requeue else 0}
    if launch.time is not None:
        job["activeDeadlineSeconds"] = launch.time
        # Without the rule the end of the time counts as a failure, after which the set starts again with all of it.
        failures["rules"] = [
            {"name": "time", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        ]
    spec = {
        "network": {"enableDNSHostnames": True},
        "failurePolicy": failures,
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
    }
    return {**_head("JobSet", "jobset.x-k8s.io/v1alpha2", launch, settings), "spec": spec}


def trainjob(launch: Launch, settings: PodSettings) -> Data:
    """A Kubeflow Trainer v2 TrainJob on the `torch-distributed` runtime, which starts torchrun itself. It can
    change the containers of its runtime and add none: no init container opens the shared folders or unpacks code."""
    made = pod(launch, settings, "node", list(launch.command), "Never")
    container = made["containers"][0]
    # The runtime tells each pod its place by torchrun's own variables.
    command = (
        torchrun(launch, "$(PET_NODE_RANK)", "$(PET_MASTER_ADDR)", "$(PET_MASTER_PORT)")
        if launch.launcher == "plain"
        else ["torchrun", *log_options(launch), *under_torchrun(launch.command)]
    )
    trainer = {
        "image": container["image"],
        "command": [*_after_unpacking(launch), *command],
        "numNodes": launch.nodes,
        "numProcPerNode": launch.processes,
        "env": [*container["env"], *code_address(launch)],
        "resourcesPerNode": {"requests": resources(launch, settings), "limits": resources(launch, settings)},
    }
    assert launch.requeue, "check: SPC004"
    carried = ("terminationGracePeriodSeconds", "nodeSelector", "tolerations", "affinity", "serviceAccountName")
    mine: Data = {key: made[key] for key in (*carried, "volumes") if key in made}
    mounts = [*container["volumeMounts"], *archive_mounts(launch)]
    own = {"securityContext": container["securityContext"]} if "securityContext" in container else {}
    mine["containers"] = [{"name": "node", "volumeMounts": mounts, **own}]
    pods = template(launch, settings, mine)
    patch = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pods}}}]}
    spec: Data = {
        "runtimeRef": {"name": TRAINJOB_RUNTIME},
        "trainer": trainer,
        "runtimePatches": [
            {"manager": "trainwright", "trainingRuntimeSpec": {"template": {"spec": patch}}},
        ],
    }
    if launch.time is not None:
        spec["activeDeadlineSeconds"] = launch.time
    return {**_head("TrainJob", "trainer.kubeflow.org/v1alpha1", launch, settings), "spec": spec}


def _after_unpacking(launch: Launch) -> list[str]:
    """The words before a command that has to unpack the run's code itself. The ranks get neither the shell nor the
    address of the code."""
    if not launch.code:
        return []
    script = f'{shlex.join(unpack_command(launch))} && unset {CODE_URL} {CODE_SHA256} && exec "$@"'
    return ["sh", "-c", script, "trainwright"]


def mpijob(launch: Launch, settings: PodSettings) -> Data:
    """An MPIJob: a launcher without GPUs runs mpirun over one worker per node; a rank's place comes from Open MPI."""
    mpirun = ["mpirun", "--allow-run-as-root", "-np", str(launch.ranks), "-N", str(launch.processes)]
    mpirun += ["--bind-to", "none", "--tag-output"]
    for line in launch.environment:
        mpirun += ["-x", f"{line.name}={line.value}"]
    for variable in secrets(launch):
        mpirun += ["-x", variable["name"]]
    rank = ["bash", "-c", MPI_RANK, "rank", f"{object_name(launch)}-worker-0.{object_name(launch)}", str(PORT)]
    restart = "OnFailure" if launch.requeue else "Never"
    first = {"name": "launcher", "image": launch.container, "command": [*mpirun, *rank, *launch.command]}
    # The operator puts the keys into root's folder with root as their owner, and sshd changes users: both run as root.
    root = {"runAsUser": 0}
    launcher = {"restartPolicy": restart, "containers": [{**first, "env": secrets(launch), "securityContext": root}]}
    worker = pod(launch, settings, "worker", ["/usr/sbin/sshd", "-De"], restart)
    worker["containers"][0]["securityContext"] = {**worker["containers"][0].get("securityContext", {}), **root}
    spec: Data = {
        "slotsPerWorker": launch.processes,
        "launcherCreationPolicy": "WaitForWorkersReady",  # before that mpirun fails: no sshd answers, no name resolves
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": launch.retries if launch.requeue else 0},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": template(launch, settings, launcher, "launcher")},
            "Worker": {"replicas": launch.nodes, "template": template(launch, settings, worker)},
        },
    }
    if launch.time is not None:
        spec["runPolicy"]["activeDeadlineSeconds"] = launch.time
    spec["runPolicy"] |= _gang(settings, launch.nodes)  # the launcher comes when they run
    return {**_head("MPIJob", "kubeflow.org/v2beta1", launch, settings), "spec": spec}


def rayjob(launch: Launch, settings: PodSettings) -> Data:
    """A KubeRay RayJob: a Ray cluster for this job alone, in which a driver starts torchrun on every node."""
    return {**_head("RayJob", "ray.io/v1", launch, settings), "spec": rayjob_spec(launch, settings)}


def node_number(pod: str) -> int | None:
    """Which node of its job a pod is, by the names that the controllers give: a PyTorchJob's workers count from one."""
    role = re.search(r"-(master|worker|node-\d+)-(\d+)(?:-[a-z0-9]+)?$", pod)
    if role is None:
        return None
    return int(role[2]) + (role[1] == "worker")


KINDS: dict[str, Kind] = {
    "pytorchjob": Kind("kubeflow.org", "v1", "pytorchjobs", pytorchjob, "training.kubeflow.org/job-name"),
    "jobset": Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", jobset, "jobset.sigs.k8s.io/jobset-name"),
    "trainjob": Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", trainjob, "jobset.sigs.k8s.io/jobset-name"),
    "mpijob": Kind("kubeflow.org", "v2beta1", "mpijobs", mpijob, "training.kubeflow.org/job-name"),
    "rayjob": Kind("ray.io", "v1", "rayjobs", rayjob, INSTANCE),  # KubeRay names its pods after the Ray cluster
}
