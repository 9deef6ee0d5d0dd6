"""Plans for HyperPod, judged by those who read them: cfn-lint for the cluster's template, botocore's validator for the
same properties as CreateCluster takes them, and our own check for every file."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator

from platforms.hyperpod.filled import OUTPUTS, outputs_of
from trainwright.check.engine import check
from trainwright.check.gate import CheckFailed
from trainwright.platforms.plan.difference import difference
from trainwright.platforms.plan.tree import ClusterPlan, make_plan, write
from trainwright.spec.load import load
from trainwright.stacks.references import fill

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("hyperpod-*.yaml"))
PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/my-plan"
MANY = [
    "queues=[{name: a, instance: p5.48xlarge, count: {min: 2, max: 8}, capacity: spot}, "
    "{name: b, instance: trn1.32xlarge, count: 2}, {name: cpu, instance: c5.4xlarge, count: 1}]",
    "software.image=ami-0123456789abcdef0",
    "jobs=[]",
]


@cache
def plan_of(example: Path, changes: tuple[str, ...] = ()) -> ClusterPlan:
    return make_plan(load(example, list(changes)))


def template(plan: ClusterPlan) -> dict[str, Any]:
    return yaml.safe_load(fill(plan.files["hyperpod.yaml"], outputs_of(plan)))


def properties(plan: ClusterPlan) -> dict[str, Any]:
    """As CloudFormation hands them to SageMaker: the ARN of the EKS cluster put together."""
    found = template(plan)["Resources"]["Cluster"]["Properties"]
    if plan.spec.platform == "hyperpod-eks":
        arn = found["Orchestrator"]["Eks"]["ClusterArn"]["Fn::Sub"]
        for name, value in {"Partition": "aws", "Region": "us-east-2", "AccountId": "111122223333"}.items():
            arn = arn.replace(f"${{AWS::{name}}}", value)
        found["Orchestrator"]["Eks"]["ClusterArn"] = arn
    return found


def groups(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    return {group["InstanceGroupName"]: group for group in properties(plan)["InstanceGroups"]}


@pytest.mark.parametrize("changes", [(), tuple(MANY)], ids=["as it is", "many groups"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_sagemaker_takes_the_cluster(example: Path, changes: tuple[str, ...], tmp_path: Path) -> None:
    """CreateCluster has the template's properties, name by name; cfn-lint reads the template as CloudFormation does."""
    from cfnlint.api import lint_file
    from cfnlint.config import ManualArgs

    plan = plan_of(example, changes)
    model = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateCluster")
    report = ParamValidator().validate(properties(plan), model.input_shape)
    assert not report.has_errors(), report.generate_report()
    path = tmp_path / "hyperpod.yaml"
    path.write_text(fill(plan.files["hyperpod.yaml"], outputs_of(plan)))
    assert [str(match) for match in lint_file(path, config=ManualArgs(regions=["us-east-2"]))] == []
    broken = {**properties(plan), "InstanceGroups": [{"InstanceGroupName": "a", "InstanceCount": "many"}]}
    assert ParamValidator().validate(broken, model.input_shape).has_errors()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_our_own_check_finds_nothing_in_the_plan(example: Path, tmp_path: Path) -> None:
    plan = plan_of(example)
    write(plan, tmp_path / "plan", {}, None)
    findings = check([str(tmp_path / "plan")]).findings
    assert [f"{f.file}:{f.span.line} {f.code} {f.message}" for f in findings if f.level != "info"] == []


def test_groups_follow_the_queues() -> None:
    made = groups(plan_of(ROOT / "examples/hyperpod-p5.yaml"))
    assert list(made) == ["controller", "train"]
    assert made["train"]["TrainingPlanArn"] == PLAN
    assert made["train"]["OnStartDeepHealthChecks"] == ["InstanceStress", "InstanceConnectivity"]
    assert "OnStartDeepHealthChecks" not in made["controller"]
    assert made["controller"]["OverrideVpcConfig"]["SecurityGroupIds"] == [
        OUTPUTS["SecurityGroup"],
        "sg-0c0c0c0c0c0c0c0c0",
    ]
    roles = {name: group["ExecutionRole"].rpartition("/")[2] for name, group in made.items()}
    assert roles == {"controller": "controller", "train": "nodes"}
    assert {group["LifeCycleConfig"]["OnCreate"] for group in made.values()} == {"on_create.sh"}
    many = plan_of(ROOT / "examples/hyperpod-p5.yaml", tuple(MANY))
    spot = groups(many)["a"]
    assert (spot["InstanceCount"], spot["MinInstanceCount"], spot["CapacityRequirements"]) == (8, 2, {"Spot": {}})
    assert properties(many)["NodeProvisioningMode"] == "Continuous"
    assert "OnStartDeepHealthChecks" not in groups(many)["cpu"], "there is no accelerator to check"


@pytest.mark.parametrize("example", ["hyperpod-p5", "hyperpod-eks-p5"])
def test_nodes_may_fetch_the_scripts_that_the_spec_names(example: str) -> None:
    plan = plan_of(ROOT / f"examples/{example}.yaml", ("queues.train.scripts=[{source: 's3://my-tools/setup.sh'}]",))
    role = next(stack for stack in plan.stacks if stack.key == "role")
    assert "arn:aws:s3:::my-tools/setup.sh" in role.parameters["ReadBuckets"].split(",")
    entry = f"lifecycle/{groups(plan)['train']['LifeCycleConfig']['OnCreate']}"
    assert "own s3://my-tools/setup.sh" in plan.files[entry]
    if example == "hyperpod-eks-p5":
        assert "my-tools" not in plan.files["lifecycle/on_create.sh"], "nodes of other queues run only what is theirs"


def test_on_eks_the_nodes_are_hyperpods_and_jobs_ask_for_healthy_ones() -> None:
    plan = plan_of(ROOT / "examples/hyperpod-eks-p5.yaml")
    assert properties(plan)["Orchestrator"] == {
        "Eks": {"ClusterArn": "arn:aws:eks:us-east-2:111122223333:cluster/hyperpod-eks-p5"}
    }
    eks = yaml.safe_load(plan.files["cluster.yaml"])
    assert [group["name"] for group in eks["managedNodeGroups"]] == ["system"]
    assert groups(plan)["train"]["KubernetesConfig"]["Labels"] == {"trainwright/queue": "train"}
    _, *queues = yaml.safe_load_all(plan.files["kubernetes/queues.yaml"])  # the topology comes first
    assert queues[0]["spec"]["nodeLabels"] == groups(plan)["train"]["KubernetesConfig"]["Labels"]
    job = yaml.safe_load(plan.files["jobs/pretrain.yaml"])
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queues[2]["metadata"]["name"]
    assert job["metadata"]["annotations"]["sagemaker.amazonaws.com/enable-job-auto-resume"] == "true"
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        "sagemaker.amazonaws.com/node-health-status": "Schedulable",
        "sagemaker.amazonaws.com/deep-health-check-status": "Passed",
    }
    charts = json.loads(plan.files["charts.json"])
    assert [chart["name"] for chart in charts] == ["hyperpod-dependencies", "kueue"], "one set of device plugins"
    deploy = plan.files["deploy.sh"]
    assert deploy.index("install_chart hyperpod-dependencies") < deploy.index("stack $cluster-hyperpod")


def test_provisioning_parameters_name_every_group_once() -> None:
    plan = plan_of(ROOT / "examples/hyperpod-p5.yaml", tuple(MANY))
    parameters = json.loads(plan.files["lifecycle/provisioning_parameters.json"])
    workers = {row["instance_group_name"] for row in parameters["worker_groups"]}
    assert workers | {parameters["controller_group"]} == set(groups(plan))
    assert parameters["fsx_dns_name"] == "stack-output:lustre-fsx.DnsName"


def test_a_changed_script_goes_to_another_folder() -> None:
    """A node that is replaced months later runs what was planned, and the change of the folder is what is deployed."""
    plan = plan_of(ROOT / "examples/hyperpod-p5.yaml")
    other = plan_of(ROOT / "examples/hyperpod-p5.yaml", ("slurm={SchedulerParameters: bf_window=60}",))
    folders = [p.scripts["lifecycle/on_create.sh"].rpartition("/")[0] for p in (plan, other)]
    assert folders[0] != folders[1]
    assert all(folder in p.files["hyperpod.yaml"] for folder, p in zip(folders, (plan, other), strict=True))


@pytest.mark.parametrize(
    ("change", "effect", "words"),
    [
        ("queues.train.count=6", "live", "nodes are added"),
        ("queues.train.count=2", "stop", "their jobs end"),
        ("queues.train.instance=p5en.48xlarge", "replace", "another type"),
        ("hyperpod.recovery=false", "live", "at once"),
        ("slurm={SchedulerParameters: bf_window=60}", "live", "new nodes run"),
        ("queues.train.root_volume=1TiB", "replace", "disks"),
    ],
)
def test_the_plan_says_what_a_change_does_to_a_cluster_that_is_up(change: str, effect: str, words: str) -> None:
    old, new = (plan_of(ROOT / "examples/hyperpod-p5.yaml", c) for c in (("jobs=[]",), ("jobs=[]", change)))
    changes = difference(old.files, new.files).changes
    said = [(each.effect, each.say) for each in changes if each.file == "hyperpod.yaml"]
    assert any(kind == effect and words in say for kind, say in said), said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queues": "[{name: q, instance: p5.48xlarge, count: 2, capacity: {block: cr-0b1c2d3e4f5a67891}}]"}, "of EC2"),
        ({"queues": "[{name: q, instance: p3.16xlarge, count: 2}]"}, "does not offer p3.16xlarge"),
        ({"queues": "[{name: controller, instance: p5.48xlarge, count: 2}]"}, "of its own"),
        ({"queues": "[{name: q, instance: p5.48xlarge, count: 2, placement: true}]"}, "places nodes by itself"),
        ({"platform": "parallelcluster",
          "queues": f"[{{name: q, instance: p5.48xlarge, count: 2, capacity: {{plan: '{PLAN}'}}}}]"}, "only HyperPod"),
        ({"platform": "parallelcluster", "users": "[{name: a, uid: 5001}]"}, "makes no accounts by itself"),
        ({"storage": "[{mount: /a, ebs: {capacity: 100GiB}}]"}, "share no volume"),
        ({"storage": "[{mount: /a, efs: {}}]"}, "makes no EFS"),
        ({"queues": f"[{{name: q, instance: p5.48xlarge, count: 2, capacity: {{plan: '{PLAN}'}}}}]",
          "region": "us-west-2"}, "is in us-east-2, not us-west-2"),
        ({"head": "{instance: c5d.2xlarge}"}, "does not offer c5d.2xlarge as a controller"),
        ({"software": "{os: alinux2023}"}, "no 'alinux2023'"),
        ({"network": "{vpc: vpc-1, public_subnet: subnet-1, private_subnet: subnet-2}"}, "need a security group"),
    ],
)  # fmt: skip
def test_what_hyperpod_cannot_do_is_found_before_anything_is_written(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    lines = {
        "name": "c", "platform": "hyperpod", "region": "us-east-2",
        "queues": "[{name: q, instance: p5.48xlarge, count: 2}]", **changes,
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    with pytest.raises(CheckFailed) as caught:
        make_plan(load(tmp_path / "spec.yaml"))
    assert words in " ".join(finding.message for finding in caught.value.result.findings)


def test_the_table_of_keys_is_what_botocore_says() -> None:
    """`check` needs no botocore; its table is made from it."""
    made = subprocess.run(["python", str(ROOT / "tools/hyperpod_keys.py")], capture_output=True, text=True, check=True)
    kept = (ROOT / "src/trainwright/check/data/hyperpod_keys.csv").read_text()
    assert made.stdout.splitlines()[2:] == kept.splitlines()[2:]


def test_the_control_plane_shares_the_group_of_hyperpods_nodes() -> None:
    """They have no other group: without it no node could reach the API of EKS, and none would join."""
    plan = make_plan(load(ROOT / "examples/hyperpod-eks-p5.yaml"))
    group = yaml.safe_load(plan.files["cluster.yaml"])["vpc"]["controlPlaneSecurityGroupIDs"]
    nodes = plan.files["hyperpod.yaml"]
    assert group == ["stack-output:network.SecurityGroup"]
    assert group[0] in nodes
    control = next(stack for stack in plan.own_stacks if stack.key == "control")
    assert control.parameters["SecurityGroup"] == group[0]
