"""Plans for AWS Batch: the stack of a queue read as CloudFormation reads it, the job definition judged by botocore, and
the reference template's known defects, none of which ours has."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from stack_reading import Reading
from trainwright.catalog.instances import instances
from trainwright.check.gate import CheckFailed
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("batch-*.yaml"))


@cache
def plan_of(example: Path) -> ClusterPlan:
    return make_plan(load(example))


def reading(plan: ClusterPlan) -> Reading:
    rows = json.loads(plan.files["stacks/batch-train.parameters.json"])
    return Reading("batch", **{row["ParameterKey"]: row["ParameterValue"] for row in rows})


def launch(plan: ClusterPlan) -> dict[str, Any]:
    return reading(plan).properties("LaunchTemplate")["LaunchTemplateData"]


@pytest.mark.parametrize("cards", sorted({machine.efa_cards for machine in instances() if machine.efa_cards}))
@pytest.mark.parametrize("first", ["true", "false"])
def test_every_card_has_one_interface_and_only_the_first_an_address(cards: int, first: str) -> None:
    read = Reading("batch", Cards=str(cards), FirstCardEfa=first, SecurityGroup="sg-1")
    interfaces = read.properties("LaunchTemplate")["LaunchTemplateData"]["NetworkInterfaces"]
    indexes = [int(each["NetworkCardIndex"]) for each in interfaces]
    assert indexes == list(range(cards + (first == "false")))
    kinds = [each["InterfaceType"] for each in interfaces]
    assert kinds[0] == ("efa" if first == "true" else "interface")
    assert set(kinds[1:]) <= {"efa-only"}
    assert sum(kind.startswith("efa") for kind in kinds) == cards
    assert [each["DeviceIndex"] for each in interfaces] == ["0", *["1"] * (len(interfaces) - 1)]


def test_a_block_is_named_in_the_launch_template_without_a_placement_group() -> None:
    plan = plan_of(ROOT / "examples/batch-p5-block.yaml")
    target = launch(plan)["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": "cr-0b1c2d3e4f5a67891"}
    assert launch(plan)["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    resources = reading(plan).properties("ComputeEnvironment")["ComputeResources"]
    assert "PlacementGroup" not in resources
    assert resources["Type"] == "EC2"
    assert int(resources["MaxvCpus"]) == 4 * 192


def test_on_demand_nodes_stand_close_together() -> None:
    resources = reading(plan_of(ROOT / "examples/batch-p4d.yaml")).properties("ComputeEnvironment")["ComputeResources"]
    assert resources["PlacementGroup"] == "<PlacementGroup>"
    assert resources["MinvCpus"] == "0"


def test_security_groups_stand_in_one_place() -> None:
    """Interfaces of a launch template name their groups; named again beside the subnets, Batch refuses both."""
    for example in EXAMPLES:
        assert "SecurityGroupIds" not in reading(plan_of(example)).properties("ComputeEnvironment")["ComputeResources"]
        assert all(each["Groups"] for each in launch(plan_of(example))["NetworkInterfaces"])


def test_the_image_is_never_the_path_of_an_ssm_parameter() -> None:
    """As in the reference's template, where no node ever started."""
    (image,) = reading(plan_of(EXAMPLES[0])).properties("ComputeEnvironment")["ComputeResources"]["Ec2Configuration"]
    assert image == {"ImageType": "ECS_AL2023_NVIDIA"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_job_fits_its_queue(example: Path) -> None:
    """The definition is what Batch takes; the file system is mounted where the plan mounts it, every card is there, and
    no ssh key is passed between containers, which torchrun does not need."""
    plan = plan_of(example)
    made = json.loads(plan.files["jobs/pretrain.json"])
    model = botocore.session.get_session().get_service_model("batch").operation_model("RegisterJobDefinition")
    report = ParamValidator().validate(made, model.input_shape)
    assert not report.has_errors(), report.generate_report()
    (group,) = made["nodeProperties"]["nodeRangeProperties"]
    container, parameters = group["container"], reading(plan).parameters
    assert {v["host"]["sourcePath"] for v in container["volumes"]} == {parameters["LustreFolder"]}
    verbs = [d for d in container["linuxParameters"]["devices"] if "uverbs" in d["hostPath"]]
    assert len(verbs) == int(parameters["Cards"])
    asked = {row["type"]: int(row["value"]) for row in container["resourceRequirements"]}
    assert asked["VCPU"] * made["nodeProperties"]["numNodes"] <= int(parameters["MaxVcpus"])
    assert "ssh" not in plan.files["jobs/pretrain.json"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queues": "[{name: q, instance: p4d.24xlarge, capacity: spot}]"}, "no job of several nodes on spot"),
        ({"storage": "[{mount: /a, lustre: {}}, {mount: /b, lustre: {}}]"}, "one Lustre file system"),
        ({"storage": "[{mount: /a, efs: {id: fs-0123456789abcdef0}}]"}, "mount Lustre only"),
        ({"storage": "[{mount: /a, lustre: {id: fs-0123456789abcdef0}}]"}, "names only AWS knows"),
        ({"monitoring": "true"}, "no Prometheus on Batch"),
    ],
)
def test_what_batch_cannot_do_is_found_before_anything_is_written(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    lines = {
        "name": "c", "platform": "batch", "region": "us-east-2",
        "queues": "[{name: q, instance: p4d.24xlarge, count: 2}]", **changes,
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    with pytest.raises(CheckFailed) as caught:
        make_plan(load(tmp_path / "spec.yaml"))
    assert words in " ".join(finding.message for finding in caught.value.result.findings)
