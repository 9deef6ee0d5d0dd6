"""Stacks of Batch as AWS would get them, for every starter and for each option that a queue can have: cfn-lint reads
the template with the parameters of the plan, botocore's validators judge the calls that CloudFormation makes of it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from stack_reading import Reading
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.platforms.wiring import StackPlan
from trainwright.spec.load import load
from trainwright.stacks.references import fill

ROOT = Path(__file__).parents[3]
STARTERS = sorted((ROOT / "examples").glob("batch-*.yaml"))
IDS = {"network": {"Vpc": "vpc-0a1b2c3d", "PrivateSubnet": "subnet-0a1b2c3d", "SecurityGroup": "sg-0a1b2c3d"},
       "lustre-fsx": {"DnsName": "fs-0a1b2c3d.fsx.us-east-2.amazonaws.com", "MountName": "abcdefgh"}}  # fmt: skip
# One queue for each option of a queue; every one mounts Lustre, stripes its own disks and carries tags.
OPTIONS = """
name: options
platform: batch
region: us-east-2
zone: use2-az3
tags: {team: "research & more", cost-centre: "4711"}
queues:
  - {name: on-demand, instance: p4d.24xlarge, count: {min: 0, max: 4}}
  - {name: warm, instance: p4d.24xlarge, count: 2, placement: ours, root_volume: 1TiB}
  - {name: reserved, instance: p5.48xlarge, count: 2, capacity: {reservation: cr-0a1b2c3d4e5f67890}}
  - {name: group, instance: p5.48xlarge, count: 2,
     capacity: {group: "arn:aws:resource-groups:us-east-2:123456789012:group/p5"}}
  - {name: block, instance: p5en.48xlarge, count: 2, capacity: {block: cr-0b1c2d3e4f5a67891}}
  - {name: plain-card, instance: p6-b300.48xlarge, count: 2, capacity: {block: cr-0b1c2d3e4f5a67891}}
  - {name: no-efa, instance: g5.8xlarge, count: {min: 0, max: 4}, efa: false}
storage:
  - {mount: /fsx, lustre: {capacity: 1.2TiB, throughput: 250}}
  - {mount: /scratch, nvme: raid0}
"""
OWN_IMAGE = """
name: own-image
platform: batch
region: us-east-2
queues:
  - {name: trainium, instance: trn1.32xlarge, count: 2}
software: {image: ami-0123456789abcdef0}
"""


@cache
def plan_of(text: str) -> ClusterPlan:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(text)
        return make_plan(load(path))


STACKS = [(path.read_text(), "train") for path in STARTERS]
STACKS += [(text, name) for text in (OPTIONS, OWN_IMAGE) for name in re.findall(r"\{name: ([\w-]+), instance", text)]
NAMES = [*(path.stem for path in STARTERS), *(queue for _, queue in STACKS[len(STARTERS) :])]


def batch_stack(text: str, queue: str) -> tuple[ClusterPlan, StackPlan]:
    plan = plan_of(text)
    [stack] = [stack for stack in plan.stacks if stack.key == f"batch-{queue}"]
    return plan, stack


def parameters(stack: StackPlan) -> dict[str, str]:
    return {name: fill(value, IDS) for name, value in stack.parameters.items()}


def typed(value: Any, shape: Any) -> Any:
    """A property of CloudFormation as the parameter of a call: names begin small, words of numbers are numbers."""
    if shape.type_name == "structure":
        members = {name.lower(): (name, member) for name, member in shape.members.items()}
        return {members.get(k.lower(), (k, None))[0]: typed(v, members[k.lower()][1]) for k, v in value.items()}
    if shape.type_name == "list":
        return [typed(each, shape.member) for each in value]
    if shape.type_name == "map":
        return {str(key): typed(each, shape.value) for key, each in value.items()}
    if shape.type_name in ("integer", "long"):
        return int(value)
    return value == "true" if shape.type_name == "boolean" else value


def refused(service: str, operation: str, properties: dict[str, Any]) -> str:
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(typed(properties, shape), shape)
    return str(report.generate_report()) if report.has_errors() else ""


@pytest.mark.parametrize(("text", "queue"), STACKS, ids=NAMES)
def test_the_calls_of_a_stack_are_what_aws_takes(text: str, queue: str) -> None:
    _, stack = batch_stack(text, queue)
    read = Reading("batch", **parameters(stack))
    environment, launch = read.properties("ComputeEnvironment"), read.properties("LaunchTemplate")
    environment.pop("ReplaceComputeEnvironment")  # CloudFormation's own, and no part of the call
    data = launch["LaunchTemplateData"]
    data["UserData"] = data["UserData"]["Fn::Base64"]
    named = {"computeEnvironmentName": "x", **environment}
    assert refused("batch", "CreateComputeEnvironment", named) == ""
    assert refused("batch", "CreateJobQueue", read.properties("JobQueue")) == ""
    assert refused("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "xyz", **launch}) == ""
    resources = environment["ComputeResources"]
    assert ("SecurityGroupIds" in resources) != ("NetworkInterfaces" in data), "Batch refuses both, and needs one"
    assert ("PlacementGroup" in resources) == (queue in ("on-demand", "warm", "trainium") or "name: batch-p4d" in text)
    resources["MaxvCpus"], resources["InstanceTypes"] = "4", "p5.48xlarge"
    assert refused("batch", "CreateComputeEnvironment", {**named, "computeResources": resources, "type": 3})


@pytest.mark.parametrize("queue", ["reserved", "plain-card", "no-efa"])
def test_cfn_lint_finds_nothing_with_the_parameters_of_the_plan(queue: str, tmp_path: Path) -> None:
    from cfnlint.api import lint_file
    from cfnlint.config import ManualArgs

    plan, stack = batch_stack(OPTIONS, queue)
    path = tmp_path / "stack.yaml"
    path.write_text(plan.files[f"stacks/{stack.key}.yaml"])
    config = ManualArgs(regions=["us-east-2"], parameters=[parameters(stack)])
    assert [str(match) for match in lint_file(path, config=config)] == []
    broken = ManualArgs(regions=["us-east-2"], parameters=[{**parameters(stack), "Cards": "5"}])
    assert [str(match) for match in lint_file(path, config=broken)] != []
    assert json.dumps(plan.spec.tags["team"]) in path.read_text()
