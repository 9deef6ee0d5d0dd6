"""AWS Batch: a job becomes a multi-node parallel job definition. Every node starts torchrun with the index and the main
node's address that Batch gives it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.aws.batch import CLUSTER_TAG, BatchApi
from trainwright.catalog.instances import InstanceType, instance
from trainwright.errors import UserError
from trainwright.schedulers.base import (
    POD_CODE,
    JobIdentity,
    JobStatus,
    Launch,
    RunsImages,
    Script,
    State,
    assert_honoured,
)
from trainwright.schedulers.batch_code import CODE_REGION, CODE_SHA256, fetch_command, write_command
from trainwright.schedulers.logs import by_rank
from trainwright.schedulers.shell import Shell
from trainwright.schedulers.torchrun import PORT, log_options, stop_forwarder, under_torchrun

_LIVE = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
_STATES: dict[str, State] = {
    "SUBMITTED": "pending", "PENDING": "pending", "RUNNABLE": "pending", "STARTING": "pending", "RUNNING": "running",
    "SUCCEEDED": "completed", "FAILED": "failed",
}  # fmt: skip

LARGEST = 24 * 2**10  # bytes of a job definition
CODE_VARIABLES = 256  # what the checksum and the region of the code add when they are known
# What another start would not change: wrong options, and an image that is not there. Every other end is tried again.
FINAL = [{"onExitCode": "2", "action": "EXIT"}, {"onReason": "CannotPullContainer*", "action": "EXIT"}]
# Where the code of a run is unpacked. A folder of the image would belong to root, and images of ours run as another
# user; anybody may write to a tmpfs. Libraries of the code are loaded from it, which Docker forbids without `exec`.
CODE_FOLDER = {
    "containerPath": str(Path(POD_CODE).parent), "size": 1024, "mountOptions": ["rw", "exec", "nosuid", "nodev"],
}  # fmt: skip


@dataclass(frozen=True)
class BatchScheduler(RunsImages):
    """Jobs of one Batch queue."""

    queue: str
    instance: str
    api: BatchApi = field(default_factory=BatchApi)
    cluster: str = ""
    job_role: str = ""
    execution_role: str = ""
    efa: bool = True  # whether the nodes of the queue have the EFA devices of their type
    tags: Mapping[str, str] = field(default_factory=dict)  # of the spec
    shell: Shell = field(default_factory=Shell)
    name = "batch"

    @property
    def at(self) -> dict[str, str]:
        """What finds this scheduler again."""
        return {"queue": self.queue, "region": self.api.region or ""}

    def render(self, launch: Launch) -> Script:
        """The job definition as `aws batch register-job-definition --cli-input-json` takes it."""
        assert_honoured(launch, self.name)
        assert launch.container, "check: SPC004"
        assert self.execution_role or not launch.secrets, "check: SPC004"
        made = definition(launch, instance(self.instance), self.efa)
        if self.cluster:
            made["tags"] = {**self.tags, CLUSTER_TAG: self.cluster}  # `down` deregisters what carries the cluster's
            made["propagateTags"] = True  # to the tasks, by which ECS and the bill know the job
        roles = {"jobRoleArn": self.job_role, "executionRoleArn": self.execution_role}
        for group in made["nodeProperties"]["nodeRangeProperties"]:
            group["container"] |= {name: role for name, role in roles.items() if role}
        require_size(launch, made)
        return Script("job.json", json.dumps(made, indent=2) + "\n")

    def submit(self, launch: Launch, script: Script) -> JobIdentity:
        made = json.loads(script.text)
        for group in made["nodeProperties"]["nodeRangeProperties"] if launch.archive else ():
            group["container"]["environment"] += [
                {"name": CODE_SHA256, "value": hashlib.sha256(launch.archive).hexdigest()},
                {"name": CODE_REGION, "value": launch.archive_region},
            ]
        job = self.api.submit(made["jobDefinitionName"], self.queue, self.api.register(made), launch.after)
        return JobIdentity(job, launch.folder.name, submitted=time.time())  # Batch gives each job an id of its own

    def jobs(self) -> list[JobStatus]:
        return [self._status(job) for job in self.api.list(self.queue, _LIVE)]

    def state(self, job: JobIdentity) -> JobStatus:
        described = self.api.describe(job.id)
        if described is None:
            return JobStatus(job.id, job.name, "unknown", self.name, reason="Batch does not know it")
        return self._status(described)

    def cancel(self, job: JobIdentity) -> None:
        self.api.terminate(job.id, "cancelled with trainwright")

    def logs(
        self, job: JobIdentity, folder: str, seen: dict[str, str], rank: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """From CloudWatch: the run folder is out of reach."""
        return by_rank(self._node_logs(job.id, seen), rank)

    def _node_logs(self, job: str, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
        whole = self.api.describe(job) or {}
        nodes = int(whole.get("nodeProperties", {}).get("numNodes", 1))
        for node in range(nodes):
            # A node of a multi-node job is a job of its own; where the service names none, the job's own stream serves.
            one = (self.api.describe(f"{job}#{node}") or {}) if nodes > 1 else whole
            stream = one.get("container", {}).get("logStreamName")
            if not stream and node == 0:
                stream = whole.get("container", {}).get("logStreamName")
            if stream:
                lines, seen[stream] = self.api.log(stream, seen.get(stream, ""))
                yield from ((f"node-{node}", line) for line in lines)

    def explain_pending(self, job: JobIdentity) -> str:
        described = self.api.describe(job.id) or {}
        if described.get("statusReason"):
            return str(described["statusReason"])
        if described.get("status") == "RUNNABLE":
            return (
                "it waits for the compute environment to start nodes: capacity, quota, or a reservation not yet active"
            )
        return "it is not waiting" if described.get("status") == "RUNNING" else "Batch gives no reason yet"

    def _status(self, job: Mapping[str, Any]) -> JobStatus:
        code = job.get("container", {}).get("exitCode")
        return JobStatus(
            id=job["jobId"],
            name=job["jobName"],
            state=_STATES.get(job["status"], "unknown"),
            scheduler=self.name,
            cluster=self.cluster,
            queue=self.queue,
            nodes=int(job.get("nodeProperties", {}).get("numNodes", 0)),
            reason=job.get("statusReason", ""),
            exit_code=code if isinstance(code, int) else None,
            restarts=max(0, len(job.get("attempts", [])) - 1),
        )


def require_size(launch: Launch, made: dict[str, Any]) -> None:
    """Refuse a definition that Batch would refuse, with what makes it smaller."""
    size = len(json.dumps(made).encode()) + (CODE_VARIABLES if launch.code_store else 0)
    if size <= LARGEST:
        return
    store = "keep the code in S3: `batch: {code: s3://BUCKET/FOLDER}` in the spec"
    raise UserError(
        f"the job definition has {size:,} bytes, and AWS Batch takes {LARGEST:,}",
        where=f"job {launch.name}",
        fix="shorten the arguments and `env:` of the job" if launch.code_store else store,
    )


def definition(launch: Launch, type_: InstanceType, efa: bool = True) -> dict[str, Any]:
    """The multi-node parallel job definition."""
    made: dict[str, Any] = {
        "jobDefinitionName": re.sub(r"[^A-Za-z0-9_-]", "-", launch.name)[:128],
        "type": "multinode",
        "nodeProperties": {
            "mainNode": 0,
            "numNodes": launch.nodes,
            "nodeRangeProperties": [{"targetNodes": "0:", "container": _container(launch, type_, efa)}],
        },
        "retryStrategy": {"attempts": 1 + (launch.retries if launch.requeue else 0), "evaluateOnExit": FINAL},
    }
    if launch.time is not None:
        made["timeout"] = {"attemptDurationSeconds": max(60, launch.time)}  # Batch takes no less than a minute
    return made


def _container(launch: Launch, type_: InstanceType, efa: bool) -> dict[str, Any]:
    memory = type_.memory_mib * 9 // 10  # the rest is the host's and the agent's
    asked = [{"type": "VCPU", "value": str(type_.vcpus)}, {"type": "MEMORY", "value": str(memory)}]
    if type_.is_gpu:
        asked.append({"type": "GPU", "value": str(launch.gpus or type_.accelerator_count)})
    # EFA shows itself as one verbs device per card; NCCL maps all memory it registers, and shares the rest in /dev/shm.
    devices = [f"/dev/infiniband/uverbs{card}" for card in range(type_.efa_cards if efa else 0)]
    devices += [f"/dev/neuron{chip}" for chip in range(type_.accelerator_count if type_.is_neuron else 0)]
    mounts = [(f"data-{number}", *mount.partition(":")[::2]) for number, mount in enumerate(launch.mounts)]
    return {
        "image": launch.container,
        "instanceType": type_.name,
        "command": ["bash", "-c", command(launch)],
        "resourceRequirements": asked,
        "environment": [{"name": line.name, "value": line.value} for line in launch.environment],
        "secrets": [{"name": variable, "valueFrom": reference} for variable, reference in launch.secrets],
        "ulimits": [
            {"name": "memlock", "softLimit": -1, "hardLimit": -1},
            {"name": "stack", "softLimit": 67108864, "hardLimit": 67108864},
        ],
        "linuxParameters": {
            "sharedMemorySize": min(memory // 2, 131072),
            "devices": [
                {"hostPath": d, "containerPath": d, "permissions": ["READ", "WRITE", "MKNOD"]} for d in devices
            ],
            **({"tmpfs": [CODE_FOLDER]} if launch.code or launch.files else {}),
        },
        "volumes": [{"name": name, "host": {"sourcePath": host}} for name, host, _ in mounts],
        "mountPoints": [{"sourceVolume": n, "containerPath": inside or host} for n, host, inside in mounts],
    }


def command(launch: Launch) -> str:
    """What every node runs; before it, the code of the run is fetched, or small files are written."""
    first = fetch_command(launch) if launch.code_store else write_command(launch) if launch.files else ""
    return f"{first} && {_ranks(launch)}" if first else _ranks(launch)


def _ranks(launch: Launch) -> str:
    """torchrun on every node. Batch tells only the other nodes the main node's address; the main node looks it up."""
    own = "$(hostname -i | cut -d' ' -f1)"
    if launch.launcher == "plain":
        return (
            f'MASTER_ADDR="${{AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:-{own}}}" MASTER_PORT={PORT} '
            f'NODE_RANK="$AWS_BATCH_JOB_NODE_INDEX" exec {shlex.join(launch.command)}'
        )
    return (
        f'exec {stop_forwarder()} torchrun --nnodes="$AWS_BATCH_JOB_NUM_NODES" '
        f"--nproc-per-node={launch.processes} "
        '--node-rank="$AWS_BATCH_JOB_NODE_INDEX" '
        f'--master-addr="${{AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:-{own}}}" '
        f"--master-port={PORT} {shlex.join([*log_options(launch), *under_torchrun(launch.command)])}"
    )
