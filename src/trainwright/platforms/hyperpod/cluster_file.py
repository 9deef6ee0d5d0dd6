"""From a spec to the CloudFormation template of its HyperPod cluster, as data that carries its reasons. The instance
groups differ from spec to spec, so this template is written with the plan and not shipped; its properties are those of
SageMaker's CreateCluster, name by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.platforms.annotated import Why
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids
from trainwright.spec.model import Queue

CONTROLLER = "controller"
ENTRY = "on_create.sh"
CHECKS = {"stress": "InstanceStress", "connectivity": "InstanceConnectivity"}


def cluster_file(
    setting: Setting,
    ids: Ids,
    roles: Mapping[str, str | Why],
    source: str,
    groups: list[dict[str, Any]],
    entries: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The whole template. `roles`: by the name of an instance group; `source`: the folder of the lifecycle scripts;
    `groups`: instance groups that differ by orchestrator, which get what all groups have; `entries`: groups whose nodes
    run another script of the folder first than ENTRY."""
    spec = setting.spec
    assert ids.security_group is not None, "check: SPC007"
    continuous = any(is_continuous(queue) for queue in spec.queues)
    properties: dict[str, Any] = {
        "ClusterName": spec.name,
        "VpcConfig": {
            "SecurityGroupIds": [ids.security_group],
            "Subnets": Why([ids.private_subnets[0]], "one zone: EFA and file systems do not cross zones"),
        },
        "NodeRecovery": _recovery(spec.hyperpod.recovery),
        **({"NodeProvisioningMode": Why("Continuous", _WHY_CONTINUOUS)} if continuous else {}),
        "InstanceGroups": [
            {
                **group,
                "ExecutionRole": roles[group["InstanceGroupName"]],
                "LifeCycleConfig": {
                    "SourceS3Uri": source,
                    "OnCreate": (entries or {}).get(group["InstanceGroupName"], ENTRY),
                },
            }
            for group in groups
        ],
        "Tags": [{"Key": key, "Value": value} for key, value in _tags(setting).items()],
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Trainwright HyperPod cluster {spec.name}",
        "Resources": {"Cluster": {"Type": "AWS::SageMaker::Cluster", "Properties": properties}},
        "Outputs": {
            "ClusterArn": {"Description": "ARN of the cluster; its last part is the id.", "Value": {"Ref": "Cluster"}}
        },
    }


_WHY_CONTINUOUS = "nodes join as they come: the cluster is in service with the least count and fills up by itself"


def _tags(setting: Setting) -> dict[str, str]:
    """The key pair is among them: HyperPod does not know it, and `connect` wants it."""
    spec = setting.spec
    key = {"trainwright:key": spec.head.key} if spec.head.key else {}
    return {**spec.tags, "trainwright:cluster": spec.name, **key}


def _recovery(on: bool) -> Why:
    if on:
        return Why("Automatic", "a node with a broken GPU is replaced; jobs go on from their last checkpoint")
    return Why("None", "the spec asks for it: a broken node stays until somebody replaces it")


def is_continuous(queue: Queue) -> bool:
    """Whether a queue's nodes may arrive one after the other."""
    assert queue.count is not None
    return queue.count.min < queue.count.max or queue.capacity.kind == "spot"


def controller_group(setting: Setting, ids: Ids) -> dict[str, Any]:
    """The node that runs Slurm's controller; people sign in there."""
    head = setting.spec.head
    group: dict[str, Any] = {
        "InstanceGroupName": CONTROLLER,
        "InstanceType": f"ml.{head.instance}",
        "InstanceCount": 1,
        "InstanceStorageConfigs": _disk(gib(head.root_volume)),
        **_image(setting),
    }
    if ids.database.get("client"):
        assert ids.security_group is not None, "check: SPC007"
        groups = {"SecurityGroupIds": [ids.security_group, ids.database["client"]], "Subnets": [ids.private_subnets[0]]}
        group["OverrideVpcConfig"] = Why(groups, "its second security group may reach the accounting database")
    return group


def queue_group(setting: Setting, queue: Queue) -> dict[str, Any]:
    """One instance group per queue."""
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    group: dict[str, Any] = {
        "InstanceGroupName": queue.name,
        "InstanceType": f"ml.{machine.name}",
        "InstanceCount": Why(queue.count.max, "HyperPod starts and stops no nodes by load: these stay up"),
    }
    if queue.count.min < queue.count.max:
        group["MinInstanceCount"] = Why(queue.count.min, "the group is in service with these")
    group["InstanceStorageConfigs"] = _disk(gib(queue.root_volume))
    group |= _image(setting) | _capacity(queue)
    checks = [CHECKS[name] for name in setting.spec.hyperpod.health_checks]
    if checks and machine.accelerator_count:
        group["OnStartDeepHealthChecks"] = Why(checks, "a new node takes jobs only when its accelerators passed")
    return group


def _disk(size: int) -> Why:
    return Why([{"EbsVolumeConfig": {"VolumeSizeInGB": size}}], "a second disk at /opt/sagemaker, for container images")


def _image(setting: Setting) -> dict[str, Any]:
    image = setting.spec.software.image
    return {} if image == "stock" else {"ImageId": Why(image, "must be made from a HyperPod image")}


def _capacity(queue: Queue) -> dict[str, Any]:
    if queue.capacity.kind == "plan":
        return {"TrainingPlanArn": Why(queue.capacity.id, "reserved nodes: they start when the plan does")}
    if queue.capacity.kind == "spot":
        return {"CapacityRequirements": Why({"Spot": {}}, "interrupted with little notice: save checkpoints often")}
    return {}


def header(name: str, source: str, first: str) -> str:
    """The comment on top of the file."""
    return (
        f"Written by `trainwright plan` from {source}: edit that file, not this one.\n"
        "Values that start with stack-output: are outputs of this plan's stacks. deploy.sh beside this file puts them\n"
        f"in and deploys the result as stack {name}-hyperpod, {first}."
    )
