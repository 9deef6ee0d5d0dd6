"""The launch of nccl-tests itself, in a container, for Slurm, Kubernetes or AWS Batch, with a computed environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEDULERS = ("slurm", "kubernetes", "batch")
MPI = (
    "--bind-to",
    "none",
    "--mca",
    "pml",
    "^ucx",
    "--mca",
    "btl",
    "tcp,self",
    "--mca",
    "btl_tcp_if_exclude",
    "lo,docker0",
)


@dataclass(frozen=True, slots=True)
class NcclTest:
    """What to run where. `environment`: (name, value, reason)."""

    program: str  # such as all_reduce_perf
    image: str
    instance: str
    nodes: int
    gpus: int
    efa_cards: int
    environment: Sequence[tuple[str, str, str]]
    low: str = "8"
    high: str = "16G"

    @property
    def command(self) -> list[str]:
        sizes = ["-b", self.low, "-e", self.high, "-f", "2"]
        return [f"/opt/nccl-tests/build/{self.program}", *sizes, "-g", "1", "-c", "1", "-n", "100"]

    @property
    def mpirun(self) -> list[str]:
        passed = [word for name, value, _ in self.environment for word in ("-x", f"{name}={value}")]
        ranks = ["-np", str(self.nodes * self.gpus), "-N", str(self.gpus)]
        return ["mpirun", "--allow-run-as-root", *ranks, *MPI, *passed, *self.command]


def render(test: NcclTest, scheduler: str) -> str:
    """The script or manifest for one scheduler."""
    return {"slurm": slurm, "kubernetes": kubernetes, "batch": batch}[scheduler](test)


def slurm(test: NcclTest) -> str:
    """An sbatch script for Pyxis: one task per GPU, joined by PMIx."""
    lines = [
        "#!/bin/bash", "#SBATCH --job-name=nccl-tests", f"#SBATCH --nodes={test.nodes}",
        f"#SBATCH --ntasks-per-node={test.gpus}", f"#SBATCH --gpus-per-node={test.gpus}", "#SBATCH --exclusive",
        "#SBATCH --output=nccl-tests-%j.log", "",
    ]  # fmt: skip
    for name, value, why in test.environment:
        lines += [f"# {why}", f"export {name}={shlex.quote(value)}"]
    lines += [f"srun --mpi=pmix --cpu-bind=none --container-image={shlex.quote(test.image)} {shlex.join(test.command)}"]
    return "\n".join(lines) + "\n"


def kubernetes(test: NcclTest) -> str:
    """An MPIJob (kubeflow.org/v2beta1) as JSON, which `kubectl apply -f -` takes."""
    limits = {"nvidia.com/gpu": test.gpus, "hugepages-2Mi": "5120Mi", "memory": "32000Mi"}
    if test.efa_cards:
        limits["vpc.amazonaws.com/efa"] = test.efa_cards
    launcher = {"image": test.image, "name": "nccl-tests", "command": test.mpirun}
    worker = {
        "image": test.image, "name": "nccl-tests", "resources": {"requests": limits, "limits": limits},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }  # fmt: skip
    memory = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    where = {"node.kubernetes.io/instance-type": test.instance}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "nccl-tests"},
        "spec": {
            "slotsPerWorker": test.gpus,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": _replica(1, {"restartPolicy": "OnFailure", "containers": [launcher]}),
                "Worker": _replica(test.nodes, {"nodeSelector": where, "containers": [worker], "volumes": memory}),
            },
        },
    }
    return json.dumps(job, indent=2) + "\n"


def _replica(count: int, pod: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "template": {"spec": pod}}


def batch(test: NcclTest) -> str:
    """A multi-node parallel job definition for `aws batch register-job-definition --cli-input-json`. The main node
    waits for the others through the image's own start script, which must start sshd on the children."""
    devices = [
        {"hostPath": f"/dev/infiniband/uverbs{card}", "containerPath": f"/dev/infiniband/uverbs{card}",
         "permissions": ["READ", "WRITE", "MKNOD"]}
        for card in range(test.efa_cards)
    ]  # fmt: skip
    needs = {"GPU": str(test.gpus), "VCPU": "32", "MEMORY": "65536"}
    container = {
        "image": test.image,
        "command": test.mpirun,
        "instanceType": test.instance,
        "environment": [{"name": name, "value": value} for name, value, _ in test.environment],
        "resourceRequirements": [{"type": kind, "value": value} for kind, value in needs.items()],
        "linuxParameters": {"devices": devices, "sharedMemorySize": 16384},
        "ulimits": [{"name": "memlock", "softLimit": -1, "hardLimit": -1}],
    }  # fmt: skip
    nodes = {
        "numNodes": test.nodes, "mainNode": 0,
        "nodeRangeProperties": [{"targetNodes": f"0:{test.nodes - 1}", "container": container}],
    }  # fmt: skip
    return (
        json.dumps({"jobDefinitionName": "nccl-tests", "type": "multinode", "nodeProperties": nodes}, indent=2) + "\n"
    )
