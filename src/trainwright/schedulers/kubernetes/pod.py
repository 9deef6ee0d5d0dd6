"""The pod each node of a job runs: GPUs, EFA, huge pages, shared memory, file systems and secrets, whatever kind of job
is around it. Everything here is data; nothing is text pasted together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.errors import UserError
from trainwright.schedulers.base import Launch
from trainwright.schedulers.torchrun import under_torchrun

Data = dict[str, Any]
HUGE_PAGES = "5120Mi"  # what the EFA provider maps for its bounce buffers, as AWS's own examples request


@dataclass(frozen=True)
class Secret:
    """One environment variable that comes from a secret of the cluster: its value never stands in a file."""

    variable: str
    secret: str
    key: str


@dataclass(frozen=True)
class Grounds:
    """What a job must know of the Kubernetes cluster it runs on."""

    namespace: str = "default"
    instance: str | None = None
    claims: Mapping[str, str] = field(default_factory=dict)  # mount folder -> PersistentVolumeClaim
    secrets: tuple[Secret, ...] = ()
    service_account: str = ""

    @property
    def type(self) -> InstanceType | None:
        return find_instance(self.instance) if self.instance else None


def container(launch: Launch, grounds: Grounds, name: str, command: list[str]) -> Data:
    """The container that trains; the image is the job's."""
    if not launch.container:
        raise UserError(
            f"job {launch.name} names no container", fix="a job on Kubernetes runs an image: add `container: image:tag`"
        )
    made: Data = {"name": name, "image": launch.container, "command": command}
    env: list[Data] = [{"name": line.name, "value": line.value} for line in launch.environment]
    env += [
        {"name": s.variable, "valueFrom": {"secretKeyRef": {"name": s.secret, "key": s.key}}} for s in grounds.secrets
    ]
    made["env"] = env
    asked = resources(launch, grounds)
    # Extended resources and huge pages cannot be overcommitted: what is requested is the limit.
    made["resources"] = {"requests": dict(asked), "limits": dict(asked)}
    made["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}, *_mounts(launch, grounds)]
    if grounds.type is not None and grounds.type.efa_cards:
        made["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    return made


def resources(launch: Launch, grounds: Grounds) -> dict[str, str]:
    """What one node of the job takes of the machine."""
    type_ = grounds.type
    if type_ is None:
        asked = {"cpu": str(launch.cpus * launch.processes)}
        if launch.gpus:
            asked["nvidia.com/gpu"] = str(launch.gpus)
        return asked
    asked = {}
    if type_.is_neuron:
        asked["aws.amazon.com/neurondevice"] = str(type_.accelerator_count)
    elif type_.is_gpu:
        asked["nvidia.com/gpu"] = str(launch.gpus or type_.accelerator_count)
    else:
        asked["cpu"] = str(max(1, type_.vcpus - 2))  # two are left for the system's own pods
    if type_.efa_cards and launch.nodes > 1:
        asked["vpc.amazonaws.com/efa"] = str(type_.efa_cards)
        asked["hugepages-2Mi"] = HUGE_PAGES
        asked["memory"] = f"{type_.memory_mib * 8 // 10}Mi"  # huge pages need a memory request beside them
    return asked


def _mounts(launch: Launch, grounds: Grounds) -> list[Data]:
    mounts = []
    for number, folder in enumerate(_folders(launch, grounds)):
        host, _, inside = folder.partition(":")
        mounts.append({"name": f"data-{number}", "mountPath": inside or host})
    return mounts


def _folders(launch: Launch, grounds: Grounds) -> list[str]:
    named = {mount.partition(":")[0] for mount in launch.mounts}
    return [*launch.mounts, *(folder for folder in grounds.claims if folder not in named)]


def volumes(launch: Launch, grounds: Grounds) -> list[Data]:
    """Shared memory (loaders and NCCL need far more than the usual 64 MiB) and the file systems."""
    made: list[Data] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    for number, folder in enumerate(_folders(launch, grounds)):
        host = folder.partition(":")[0]
        claim = grounds.claims.get(host)
        source: Data = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"hostPath": {"path": host}}
        made.append({"name": f"data-{number}", **source})
    return made


def pod(launch: Launch, grounds: Grounds, name: str, command: list[str], restart: str) -> Data:
    """The pod's specification."""
    spec: Data = {"restartPolicy": restart, "containers": [container(launch, grounds, name, command)]}
    if grounds.instance:
        spec["nodeSelector"] = {"node.kubernetes.io/instance-type": grounds.instance}
    if launch.gpus or (grounds.type is not None and grounds.type.is_gpu):
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if launch.exclusive and launch.nodes > 1:
        spec["affinity"] = _one_a_node(launch.name)
    if grounds.service_account:
        spec["serviceAccountName"] = grounds.service_account
    spec["volumes"] = volumes(launch, grounds)
    return spec


def _one_a_node(job: str) -> Data:
    term = {"labelSelector": {"matchLabels": labels(job)}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def labels(job: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": job, "app.kubernetes.io/managed-by": "trainwright"}


def torchrun(launch: Launch, node_rank: str, master: str, port: str) -> list[str]:
    """The rank's command under torchrun. `$(NAME)` is filled in by Kubernetes from the pod's environment."""
    return [
        "torchrun",
        f"--nnodes={launch.nodes}",
        f"--nproc-per-node={launch.processes}",
        f"--node-rank={node_rank}",
        f"--master-addr={master}",
        f"--master-port={port}",
        *under_torchrun(launch.command),
    ]
