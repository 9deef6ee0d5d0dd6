"""Plans for AWS Batch: the stack of a queue read as CloudFormation reads it, the job definition judged by botocore, and
the reference template's known defects, none of which ours has."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
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
from trainwright.schedulers.base import Launch
from trainwright.spec.load import load
from trainwright.stacks.library import template

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


# What a node has, as far as its boot script asks: these do nothing but leave a line, those also answer.
QUIET = ("dnf", "mdadm", "mkfs.xfs", "mount", "mkdir", "chmod", "shutdown")
ANSWERS = {
    "modinfo": "exit 1",
    "curl": "touch efa.tar.gz",
    "tar": "/bin/mkdir aws-efa-installer; cp $STANDIN aws-efa-installer/efa_installer.sh",
    "lsblk": """echo '/dev/nvme1n1 Amazon EC2 NVMe Instance Storage'
echo '/dev/nvme2n1 Amazon EC2 NVMe Instance Storage'
echo '/dev/nvme0n1 Amazon Elastic Block Store'""",
}


def boot_script(**parameters: str) -> str:
    """The user data's script as a node gets it: parameters put in, `${!name}` left to the shell."""
    read = Reading("batch", **parameters)
    text = template("batch").text.split("#!/bin/bash\n", 1)[1].split("--trainwright--", 1)[0]
    text = re.sub(r"\$\{([A-Z]\w+)\}", lambda m: read.parameters[m[1]], text).replace("${!", "${")
    return "#!/bin/bash\n" + textwrap.dedent(" " * 12 + text.lstrip())


def test_the_boot_script_is_right_and_stripes_disks(tmp_path: Path) -> None:
    text = boot_script(Scratch="/scratch", Cards="32", EfaInstaller="1.43.2", LustreDns="fs.fsx", LustreMount="abcd")
    (tmp_path / "ecs").mkdir()
    (tmp_path / "boot.sh").write_text(text.replace("/etc/ecs", str(tmp_path / "ecs")))
    done = subprocess.run(
        ["shellcheck", "-s", "bash", "-e", "SC2050,SC2157", str(tmp_path / "boot.sh")], capture_output=True, text=True
    )
    assert done.stdout == ""
    for name in (*QUIET, *ANSWERS):
        (tmp_path / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{ANSWERS.get(name, ":")}\n')
        (tmp_path / name).chmod(0o755)
    here = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls"), "TMPDIR": str(tmp_path),
        "STANDIN": str(tmp_path / "mdadm"),
    }  # fmt: skip
    assert subprocess.run(["bash", str(tmp_path / "boot.sh")], env=here, cwd=tmp_path).returncode == 0
    calls = (tmp_path / "calls").read_text()
    assert "mdadm --create /dev/md0 --level=0 --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1" in calls
    assert "mount -o noatime,discard /dev/md0 /scratch" in calls
    assert "mount -t lustre -o noatime,flock fs.fsx@tcp:/abcd /fsx" in calls
    assert "chmod 1777 /fsx /fsx/trainwright /fsx/trainwright/runs" in calls, "images need not run as root"
    assert "shutdown" not in calls
    assert (tmp_path / "ecs" / "ecs.config").read_text() == f"ECS_CONTAINER_STOP_TIMEOUT={Launch.grace}s\n"
    (tmp_path / "mount").write_text("#!/bin/bash\nexit 1\n")
    assert subprocess.run(["bash", str(tmp_path / "boot.sh")], env=here, cwd=tmp_path).returncode != 0
    assert "shutdown -h now" in (tmp_path / "calls").read_text(), "a node without its data must not take jobs"


@pytest.mark.parametrize(
    ("driver", "installs"),
    [("exit 1", True), ("echo 2.13.0g", True), ("echo 2.17.2", True), ("echo 2.17.3g", False), ("echo 3.1.0", False)],
)
def test_a_node_with_an_older_efa_driver_gets_the_new_one(tmp_path: Path, driver: str, installs: bool) -> None:
    """NVIDIA's driver 580 needs EFA's 2.17.3 to reach GPU memory; a kernel may bring an older module."""
    text = boot_script(Cards="32", EfaInstaller="1.47.0")
    (tmp_path / "boot.sh").write_text(text.replace("/etc/ecs", str(tmp_path)))
    for name in (*QUIET, *ANSWERS):
        (tmp_path / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{ANSWERS.get(name, ":")}\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "modinfo").write_text(f"#!/bin/bash\n{driver}\n")
    here = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls"), "TMPDIR": str(tmp_path),
        "STANDIN": str(tmp_path / "mdadm"),
    }  # fmt: skip
    assert subprocess.run(["bash", str(tmp_path / "boot.sh")], env=here, cwd=tmp_path).returncode == 0
    assert ("aws-efa-installer-1.47.0" in (tmp_path / "calls").read_text()) == installs


def test_security_groups_stand_in_one_place() -> None:
    """Batch refuses groups beside the subnets while the launch template has network interfaces, and jobs without EFA
    get no group of ours unless they stand there."""
    for example in EXAMPLES:
        assert "SecurityGroupIds" not in reading(plan_of(example)).properties("ComputeEnvironment")["ComputeResources"]
        assert all(each["Groups"] for each in launch(plan_of(example))["NetworkInterfaces"])
    plain = Reading("batch", SecurityGroup="sg-1")
    assert plain.properties("ComputeEnvironment")["ComputeResources"]["SecurityGroupIds"] == ["sg-1"]
    assert "NetworkInterfaces" not in plain.properties("LaunchTemplate")["LaunchTemplateData"]


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
