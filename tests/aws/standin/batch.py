"""AWS Batch of the stand-in: compute environments and job queues that take their time, refuse what Batch refuses, and
start the nodes that are always up. Jobs are moto's, which ends them at once; with `hold` they run until terminated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from standin.cluster_resources import terminate
from standin.resources import Made, Place, _register
from trainwright.catalog.instances import instance

SETTLES = {"CREATING": 20.0, "UPDATING": 10.0, "DELETING": 30.0}  # seconds
IMAGE = "ami-12c6146b"
HELD = "RUNNING"


class BatchError(Exception):
    pass


@dataclass
class Part:
    """A compute environment or a job queue."""

    name: str
    arn: str
    fields: dict[str, Any]
    state: str = "ENABLED"
    status: str = "CREATING"
    until: float = 0.0
    nodes: list[str] = field(default_factory=list)


class Batch:
    """One region's. `moment` is the time of what happens now; `takes` how long a wait is under the test's pace."""

    def __init__(self, region: str, account: str, moment: Callable[[], float], takes: Callable[[float], float]) -> None:
        self.region, self.account, self.moment, self.takes = region, account, moment, takes
        self.environments: dict[str, Part] = {}
        self.queues: dict[str, Part] = {}

    def settle(self) -> None:
        for parts in (self.environments, self.queues):
            for part in [part for part in parts.values() if part.until <= self.moment()]:
                if part.status == "DELETING":
                    del parts[part.name]
                elif part.status != "INVALID":
                    part.status = "VALID"

    def find(self, parts: dict[str, Part], name: str) -> Part:
        self.settle()
        for part in parts.values():
            if name in (part.name, part.arn):
                return part
        raise BatchError(f"{name} does not exist")

    def _begin(self, part: Part, status: str) -> None:
        part.status, part.until = status, self.moment() + self.takes(SETTLES[status])

    def make(self, parts: dict[str, Part], kind: str, name: str, fields: dict[str, Any]) -> Part:
        self.settle()
        if name in parts:
            raise BatchError(f"Object already exists: {name}")
        parts[name] = Part(name, f"arn:aws:batch:{self.region}:{self.account}:{kind}/{name}", fields)
        self._begin(parts[name], "CREATING")
        return parts[name]

    def switch(self, parts: dict[str, Part], name: str, state: str) -> Part:
        part = self.find(parts, name)
        if part.status not in ("VALID", "INVALID"):
            raise BatchError("Cannot update, resource is being modified.")
        part.state = state
        self._begin(part, "UPDATING")
        return part

    def delete(self, parts: dict[str, Part], name: str) -> None:
        part = self.find(parts, name)
        if part.status == "DELETING":
            return
        if part.state != "DISABLED":
            raise BatchError("Cannot delete, state must be DISABLED.")
        if part.status not in ("VALID", "INVALID"):
            raise BatchError("Cannot delete, resource is being modified.")
        users = [q.name for q in self.queues.values() if part.arn in q.fields.get("order", [])]
        if users:
            raise BatchError(f"Cannot delete, found existing JobQueue relationship with {', '.join(users)}.")
        self._begin(part, "DELETING")

    def describe(self, part: Part, kind: str) -> dict[str, Any]:
        row = {f"{kind}Name": part.name, f"{kind}Arn": part.arn, "state": part.state, "status": part.status}
        if kind == "jobQueue":
            order = [{"order": n, "computeEnvironment": arn} for n, arn in enumerate(part.fields["order"], 1)]
            return {**row, "priority": 1, "computeEnvironmentOrder": order}
        resources = part.fields["ComputeResources"]
        return {**row, "type": "MANAGED", "computeResources": {"maxvCpus": int(resources["MaxvCpus"])}}


def _environment(props: dict[str, Any], at: Place) -> Made:
    batch, resources = at.engine.batch, props["ComputeResources"]
    if not str(resources["InstanceRole"]).startswith("arn:aws:iam:"):
        raise ValueError("CLIENT_ERROR - instanceRole must be an instance profile")
    if int(resources["MinvCpus"]) > int(resources["MaxvCpus"]):
        raise ValueError("minvCpus must be less than or equal to maxvCpus")
    data = at.engine.launch_data[resources["LaunchTemplate"]["LaunchTemplateId"]]
    cards = data.get("NetworkInterfaces", [])
    if cards and "SecurityGroupIds" in resources:
        raise ValueError("Error executing request, Exception : Either compute environment Security Groups or Network "
                         "Interfaces in Launch template are exclusively allowed")  # fmt: skip
    groups = cards[0]["Groups"] if cards else resources["SecurityGroupIds"]
    part = batch.make(batch.environments, "compute-environment", at.unique[-60:], props)
    machine = instance(resources["InstanceTypes"][0])
    count = -(-int(resources["MinvCpus"]) // machine.vcpus)
    if count:
        made = at.client("ec2").run_instances(
            ImageId=IMAGE, InstanceType=machine.name, SubnetId=resources["Subnets"][0], SecurityGroupIds=groups,
            MinCount=count, MaxCount=count, TagSpecifications=_machine_tags(data, resources),
        )["Instances"]  # fmt: skip
        part.nodes = [one["InstanceId"] for one in made]
    return part.arn, {"ComputeEnvironmentArn": part.arn}


def _machine_tags(data: dict[str, Any], resources: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the launch template, and on instances those of the environment, which win."""
    rows = data["TagSpecifications"]
    kinds = {row["ResourceType"]: {tag["Key"]: tag["Value"] for tag in row["Tags"]} for row in rows}
    for row in rows:
        if len(row["Tags"]) != len(kinds[row["ResourceType"]]):
            raise ValueError("InvalidParameterValue: Duplicate tag key specified.")
    kinds["instance"] |= resources.get("Tags", {})
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for kind, tags in kinds.items() if kind != "network-interface"]  # moto makes none  # fmt: skip


def _close(batch: Batch, parts: dict[str, Part], name: str) -> None:
    """CloudFormation disables what it deletes, and waits for that."""
    part = batch.find(parts, name)
    if part.status != "DELETING":
        part.state, part.status = "DISABLED", "VALID"


def _drop_environment(physical: str, props: dict[str, Any], at: Place) -> None:
    batch = at.engine.batch
    try:
        part = batch.find(batch.environments, physical)
    except BatchError:
        return
    _close(batch, batch.environments, physical)
    batch.delete(batch.environments, physical)
    if part.nodes:
        terminate(at, part.nodes)
        part.nodes = []


def _resize(physical: str, props: dict[str, Any], at: Place) -> None:
    at.engine.batch.find(at.engine.batch.environments, physical).fields = props


_register(
    "AWS::Batch::ComputeEnvironment", _environment, _drop_environment, seconds=30.0, deletion=60.0, update=_resize,
    mutable=frozenset({"Tags", "State", "ComputeResources.MinvCpus", "ComputeResources.MaxvCpus",
                       "ComputeResources.Tags", "ComputeResources.LaunchTemplate"}),
)  # fmt: skip


def _queue(props: dict[str, Any], at: Place) -> Made:
    from moto.batch.models import JobQueue, batch_backends

    batch = at.engine.batch
    order = [row["ComputeEnvironment"] for row in sorted(props["ComputeEnvironmentOrder"], key=lambda r: r["Order"])]
    for name in order:
        if batch.find(batch.environments, name).status != "VALID":
            raise ValueError(f"{name} is not VALID")
    part = batch.make(batch.queues, "job-queue", props["JobQueueName"], {**props, "order": order})
    backend = batch_backends[at.account][at.region]
    queue = JobQueue(part.name, "1", "ENABLED", [], [], schedule_policy=None, backend=backend, tags=at.tags)
    backend._job_queues[queue.arn] = queue
    return part.arn, {"JobQueueArn": part.arn}


def _drop_queue(physical: str, props: dict[str, Any], at: Place) -> None:
    from moto.batch.models import batch_backends

    batch, backend = at.engine.batch, batch_backends[at.account][at.region]
    try:
        _close(batch, batch.queues, physical)
    except BatchError:
        return
    batch.delete(batch.queues, physical)
    backend._job_queues.pop(physical, None)


_register(
    "AWS::Batch::JobQueue", _queue, _drop_queue, seconds=30.0, deletion=60.0,
    mutable=frozenset({"Tags", "State", "Priority", "ComputeEnvironmentOrder", "JobStateTimeLimitActions"}),
)  # fmt: skip


def install(patched: Callable[[Any, str, Callable[[Any], Any]], None], world: Callable[[], Any]) -> None:
    """Put this Batch in the place of moto's; its jobs stay moto's."""
    from moto.batch.exceptions import ClientException
    from moto.batch.responses import BatchResponse

    def action(function: Callable[[Any, Any], dict[str, Any]]) -> Callable[[Any], str]:
        def method(self: Any) -> str:
            try:
                return json.dumps(function(self, world().region(self.region).batch))
            except BatchError as error:
                raise ClientException(str(error)) from error

        return method

    def describe(batch: Batch, parts: dict[str, Part], kind: str, names: list[str] | None) -> list[dict[str, Any]]:
        batch.settle()
        return [batch.describe(p, kind) for p in parts.values() if not names or p.name in names or p.arn in names]

    def environments(self: Any, batch: Batch) -> dict[str, Any]:
        names = self._get_param("computeEnvironments")
        return {"computeEnvironments": describe(batch, batch.environments, "computeEnvironment", names)}

    def queues(self: Any, batch: Batch) -> dict[str, Any]:
        return {"jobQueues": describe(batch, batch.queues, "jobQueue", self._get_param("jobQueues"))}

    def switch_queue(self: Any, batch: Batch) -> dict[str, Any]:
        part = batch.switch(batch.queues, self._get_param("jobQueue"), self._get_param("state"))
        return {"jobQueueName": part.name, "jobQueueArn": part.arn}

    def switch_environment(self: Any, batch: Batch) -> dict[str, Any]:
        part = batch.switch(batch.environments, self._get_param("computeEnvironment"), self._get_param("state"))
        return {"computeEnvironmentName": part.name, "computeEnvironmentArn": part.arn}

    def delete_queue(self: Any, batch: Batch) -> dict[str, Any]:
        batch.delete(batch.queues, self._get_param("jobQueue"))
        return {}

    def delete_environment(self: Any, batch: Batch) -> dict[str, Any]:
        batch.delete(batch.environments, self._get_param("computeEnvironment"))
        return {}

    first = BatchResponse.submitjob

    def submit(self: Any, batch: Batch) -> dict[str, Any]:
        if batch.find(batch.queues, self._get_param("jobQueue")).state != "ENABLED":
            raise BatchError("Job queue is not enabled")
        answer: dict[str, Any] = json.loads(first(self))
        if world().hold_jobs:
            self.batch_backend.get_job_by_id(answer["jobId"]).status = HELD
        return answer

    def end(self: Any, batch: Batch) -> dict[str, Any]:
        job = self.batch_backend.get_job_by_id(self._get_param("jobId"))
        if job is not None and job.status == HELD:
            job.status, job.status_reason = "FAILED", self._get_param("reason")
        return {}

    for name, function in {
        "describecomputeenvironments": environments, "describejobqueues": queues, "updatejobqueue": switch_queue,
        "updatecomputeenvironment": switch_environment, "deletejobqueue": delete_queue,
        "deletecomputeenvironment": delete_environment, "submitjob": submit, "terminatejob": end,
    }.items():  # fmt: skip
        patched(BatchResponse, name, action(function))
