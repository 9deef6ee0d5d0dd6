"""The pod each node of a job runs: GPUs, EFA, huge pages, shared memory, file systems and secrets, whatever kind of job
is around it. Everything here is data; nothing is text pasted together."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.schedulers import fetch_code
from trainwright.schedulers.base import Launch
from trainwright.schedulers.torchrun import before_stop, log_options, under_torchrun

Data = dict[str, Any]
# What the EFA provider may map for its bounce buffers, as AWS's own examples request; EKS's image for GPUs reserves it.
HUGE_PAGES = "5120Mi"

EFA = "vpc.amazonaws.com/efa"
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}  # of nodes kept for GPU pods
FETCH = Path(fetch_code.__file__).read_text()
CODE_URL, CODE_SHA256 = "TRAINWRIGHT_CODE_URL", "TRAINWRIGHT_CODE_SHA256"
ARCHIVES, ARCHIVE = "/trainwright/archive", "code.tar.gz"
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"  # operators change other labels
TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"  # the nearest part that has room; wider where it has not
LONGEST = 45  # of 63 letters; the rest is for -worker-1023 and what the controllers put behind a pod's name

LONGEST_LABEL = 63


@dataclass(frozen=True)
class PodSettings:
    """What a job must know of the Kubernetes cluster it runs on."""

    namespace: str = "default"
    instance: str | None = None
    node_type: str = ""  # what the nodes' label says, where it is not the instance type
    claims: Mapping[str, str] = field(default_factory=dict)  # mount folder -> PersistentVolumeClaim
    scratch: tuple[str, ...] = ()  # folders on the node's own disks, empty at the start and gone with the pod
    service_account: str = ""
    kueue: str = ""  # LocalQueue that jobs wait in
    huge_pages: bool = True  # the GPU nodes have some; Karpenter starts no node for a pod that asks for them
    gang: str = ""  # gang scheduler of the operator, where it has one
    node_labels: Mapping[str, str] = field(default_factory=dict)  # what nodes must carry beside their type
    annotations: Mapping[str, str] = field(default_factory=dict)  # of a job that comes back after a fault
    efa: bool = True  # whether nodes have the EFA devices of their type
    shared: tuple[
        str, ...
    ] = ()  # mounts of file systems that a plan of ours made, which begin with root as their owner
    topology: str = ""  # label of the part of the network that the nodes of a job should share

    @property
    def type(self) -> InstanceType | None:
        return find_instance(self.instance) if self.instance else None


def container(launch: Launch, settings: PodSettings, name: str, command: list[str]) -> Data:
    """The container that trains; the image is the job's."""
    assert launch.container, "check: SPC004"
    made: Data = {"name": name, "image": launch.container, "command": command}
    made["env"] = [*({"name": line.name, "value": line.value} for line in launch.environment), *secrets(launch)]
    asked = resources(launch, settings)
    # Extended resources and huge pages cannot be overcommitted: what is requested is the limit.
    made["resources"] = {"requests": dict(asked), "limits": dict(asked)}
    made["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}, *_mounts(launch, settings)]
    if launch.code:
        made["volumeMounts"].append({"name": "code", "mountPath": launch.code})
    if EFA in asked:
        # EFA registers more memory than other users may lock, and a capability that is added reaches root alone.
        made["securityContext"] = {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}
    return made


def secrets(launch: Launch) -> list[Data]:
    """Variables that come from secrets of the cluster: their values are never in a file."""
    made = []
    for variable, reference in launch.secrets:
        name, _, key = reference.partition("/")
        assert all((name, key)), "check: SPC004"
        made.append(_secret(variable, name, key))
    # The values of the user's own secrets are in a Secret of the run, which `submit` makes and which ends with the job.
    return [*made, *(_secret(secret.name, object_name(launch), secret.name) for secret in launch.secret_env)]


def _secret(variable: str, name: str, key: str) -> Data:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def resources(launch: Launch, settings: PodSettings) -> dict[str, str]:
    """What one node of the job takes of the machine."""
    type_ = settings.type
    if type_ is None:
        asked = {"cpu": str(launch.cpus * launch.processes)}
        if launch.gpus:
            asked["nvidia.com/gpu"] = str(launch.gpus)
        return asked
    asked = {}
    if type_.is_neuron:
        asked["aws.amazon.com/neuron"] = str(type_.accelerator_count)
    elif type_.is_gpu:
        asked["nvidia.com/gpu"] = str(launch.gpus or type_.accelerator_count)
    else:
        asked["cpu"] = str(max(1, type_.vcpus - 2))  # two are left for the system's own pods
    if type_.efa_cards and settings.efa and launch.nodes > 1:
        asked[EFA] = str(type_.efa_cards)
        if type_.is_gpu and settings.huge_pages:
            asked["hugepages-2Mi"] = HUGE_PAGES
        asked["memory"] = f"{type_.memory_mib * 8 // 10}Mi"  # huge pages need a memory request beside them
    return asked


def _mounts(launch: Launch, settings: PodSettings) -> list[Data]:
    mounts = []
    for number, folder in enumerate(_folders(launch, settings)):
        host, _, inside = folder.partition(":")
        mounts.append({"name": f"data-{number}", "mountPath": inside or host})
    return mounts


def _folders(launch: Launch, settings: PodSettings) -> list[str]:
    named = {mount.partition(":")[0] for mount in launch.mounts}
    return [*launch.mounts, *(folder for folder in settings.claims if folder not in named)]


def volumes(launch: Launch, settings: PodSettings) -> list[Data]:
    """Shared memory (loaders and NCCL need far more than the usual 64 MiB) and the file systems."""
    # Data loaders and NCCL share memory there; half of the node's, as Linux gives its own /dev/shm.
    most = {"sizeLimit": f"{settings.type.memory_mib // 2}Mi"} if settings.type is not None else {}
    made: list[Data] = [{"name": "shm", "emptyDir": {"medium": "Memory", **most}}]
    for number, folder in enumerate(_folders(launch, settings)):
        host = folder.partition(":")[0]
        claim = settings.claims.get(host)
        source: Data = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"hostPath": {"path": host}}
        made.append({"name": f"data-{number}", **({"emptyDir": {}} if host in settings.scratch else source)})
    if launch.code:
        made.append({"name": "code", "emptyDir": {}})
        if not launch.code_store:
            made.append({"name": "archive", "configMap": {"name": object_name(launch)}})
    return made


def unpack(launch: Launch, settings: PodSettings) -> Data:
    """Puts the code of the run into the pod before the ranks start; a ConfigMap holds no folders."""
    made: Data = {"name": "code", "image": launch.container, "command": unpack_command(launch)}
    mounts = [{"name": "code", "mountPath": launch.code}]
    if launch.code_store:  # the archive is kept with the run
        return {**made, "env": code_address(launch), "volumeMounts": [*mounts, *_mounts(launch, settings)]}
    return {**made, "volumeMounts": [*mounts, *archive_mounts(launch)]}


def unpack_command(launch: Launch) -> list[str]:
    assert launch.code
    if launch.code_store:
        return ["python3", "-c", FETCH, f"{launch.folder}/{ARCHIVE}", launch.code]
    return ["tar", "-xzf", f"{ARCHIVES}/{ARCHIVE}", "-C", launch.code]


def code_address(launch: Launch) -> list[Data]:
    """Where the code is in S3: a secret, for what unpacks it alone."""
    return [_secret(name, object_name(launch), name) for name in (CODE_URL, CODE_SHA256)] if launch.code_store else []


def archive_mounts(launch: Launch) -> list[Data]:
    """The ConfigMap of the run with its code, where that is small."""
    return [{"name": "archive", "mountPath": ARCHIVES}] if launch.code and not launch.code_store else []


def _open_folders(launch: Launch, settings: PodSettings) -> list[Data]:
    """Lets every user write where a file system of ours is mounted: it begins with root as its owner, and images need
    not run as root. As with /tmp, nobody removes what is another's."""
    mounts = [mount for mount, folder in zip(_mounts(launch, settings), _folders(launch, settings), strict=True)
              if folder.partition(":")[0] in settings.shared]  # fmt: skip
    if not mounts:
        return []
    folders = [f"{mount['mountPath']}{rest}" for mount in mounts for rest in ("", "/trainwright", "/trainwright/runs")]
    script = f"mkdir -p {shlex.join(folders)} && chmod 1777 {shlex.join(folders)}"
    return [
        {
            "name": "folders",
            "image": launch.container,
            "command": ["sh", "-c", script],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": mounts,
        }
    ]


def pod(launch: Launch, settings: PodSettings, name: str, command: list[str], restart: str) -> Data:
    """The pod's specification."""
    spec: Data = {"restartPolicy": restart, "containers": [container(launch, settings, name, command)]}
    spec["terminationGracePeriodSeconds"] = launch.grace  # time to save after SIGTERM
    if command[:1] == ["torchrun"]:  # which would kill its ranks after 30 s
        spec["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": before_stop()}}}
    if settings.instance:
        type_label = {"node.kubernetes.io/instance-type": settings.node_type or settings.instance}
        spec["nodeSelector"] = {**type_label, **settings.node_labels}
    if launch.gpus or (settings.type is not None and settings.type.is_gpu):
        spec["tolerations"] = [dict(GPU_TOLERATION)]
    if launch.exclusive and launch.nodes > 1:
        spec["affinity"] = _one_per_node(launch)
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    first = [*_open_folders(launch, settings), *([unpack(launch, settings)] if launch.code else [])]
    if first:
        spec["initContainers"] = first
    spec["volumes"] = volumes(launch, settings)
    return spec


def _one_per_node(launch: Launch) -> Data:
    own = {key: value for key, value in pod_labels(launch).items() if key in (INSTANCE, COMPONENT)}
    term = {"labelSelector": {"matchLabels": own}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def object_name(launch: Launch) -> str:
    """The run's name as Kubernetes allows one: a DNS label, short enough that pods can have their number behind it."""
    words = re.sub(r"[^a-z0-9-]+", "-", launch.folder.name.lower()).strip("-")
    words = words if words[:1].isalpha() else f"job-{words}"
    if len(words) <= LONGEST:
        return words
    stamp = words[-21:].lstrip("-")  # date, time and four letters: what makes a run's name the only one
    return f"{words[: LONGEST - len(stamp) - 1].rstrip('-')}-{stamp}"


def labels(launch: Launch) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": launch.name[:LONGEST_LABEL].rstrip("-_."),  # a label ends with a letter or a number
        INSTANCE: object_name(launch),
        "app.kubernetes.io/managed-by": "trainwright",
    }


def pod_labels(launch: Launch, component: str = "node") -> dict[str, str]:
    return {**labels(launch), COMPONENT: component}


def template(launch: Launch, settings: PodSettings, spec: Data, component: str = "node") -> Data:
    """A pod's template: its labels, and where in the network Kueue should put the pods that train."""
    meta: Data = {"labels": pod_labels(launch, component)}
    if settings.topology and launch.nodes > 1 and component == "node":
        meta["annotations"] = {TOPOLOGY: settings.topology}
    return {"metadata": meta, "spec": spec}


def torchrun(launch: Launch, node_rank: str, master: str, port: str) -> list[str]:
    """The rank's command under torchrun. `$(NAME)` is filled in by Kubernetes from the pod's environment."""
    if launch.launcher == "plain":
        place = [f"NODE_RANK={node_rank}", f"MASTER_ADDR={master}", f"MASTER_PORT={port}"]
        return ["env", *place, *launch.command]
    return [
        "torchrun",
        f"--nnodes={launch.nodes}",
        f"--nproc-per-node={launch.processes}",
        f"--node-rank={node_rank}",
        f"--master-addr={master}",
        f"--master-port={port}",
        *log_options(launch),
        *under_torchrun(launch.command),
    ]
