"""The policies that `trainwright iam` prints, held against the calls that `up`, `status`, `explain`, `connect` and
`down` make: every one is allowed, and nothing of ours is granted that none of them makes."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from click.testing import CliRunner
from standin.harness import BATCH, EKS, HYPERPOD, HYPERPOD_EKS, REGION, SPEC, Cloud
from standin.tool import StandInTool
from standin.world import inside

from trainwright.aws import offerings
from trainwright.aws.cloudformation import CLUSTER_TAG
from trainwright.aws.cluster_logs import stack_texts
from trainwright.aws.head_node import find_head
from trainwright.cli.main import cli
from trainwright.platforms.apply.base import aws_platform
from trainwright.platforms.apply.prepare import prepare
from trainwright.platforms.apply.status import clusters
from trainwright.platforms.apply.steps import run
from trainwright.platforms.hyperpod.platform import way_to
from trainwright.platforms.iam.policy import HYPERPOD_CLUSTER, LARGEST, needed, node_policies, person_policies, rules
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild
from trainwright.platforms.parallelcluster.apply.status import ParallelClusterStatus
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load
from trainwright.stacks.library import template

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    ROOT / "examples" / f"{name}.yaml"
    for name in ("p5-reservation", "monitored", "roberta", "vision-g4dn", "hyperpod-p5")
]
# Calls whose permission has another name than the operation.
NAMES = {
    "s3:HeadBucket": ["s3:ListBucket"],
    "s3:ListObjectsV2": ["s3:ListBucket"],
    "s3:ListObjectVersions": ["s3:ListBucketVersions"],
    "s3:DeleteObjects": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
    "s3:HeadObject": ["s3:GetObject"],
}
# Granted, and called by no code of this repository in the test: by whom then.
ELSEWHERE = {
    "ssm:StartSession": "the AWS command line, for `connect`",
    "ssm:TerminateSession": "the AWS command line, for `connect`",
    "ssm:ResumeSession": "the AWS command line, for `connect`",
    "cloudformation:DeleteChangeSet": "`up`, where a change set holds no change or a killed run left one",
    "cloudformation:TagResource": "AWS asks for it where a stack is made with tags",
    "ec2:CreateTags": "AWS asks for it where a key pair is imported with tags",
    "ec2:DescribeSubnets": "the check before `up`, where the spec names subnets",
    "ec2:DescribeImages": "the check before `up`, where the spec names an image",
    "ec2:DescribeSecurityGroups": "the check before `up`, where the spec names a group",
}
EKS_STACKS = ("eks-cluster", "eks-nodes", "eks-addons")


class Quiet(StandInTool):
    """pcluster's own calls, which are pcluster's rules."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not callable(found) or name.startswith("_"):
            return found

        def call(*args: Any, **more: Any) -> Any:
            with inside():
                return found(*args, **more)

        return call


@pytest.fixture
def called(cloud: Cloud, tmp_path: Path) -> tuple[ClusterPlan, set[str]]:
    """A whole life of a cluster; the plan, and the calls that were made on the way."""
    plan = cloud.planned(tmp_path)
    before = len(cloud.world.faults.calls)
    offerings.offered_zones(REGION, ["p5.48xlarge"])
    for change in ("", "zone: use2-az3\ntags: {team: two}"):
        (tmp_path / "cut.yaml").write_text(SPEC.replace("zone: use2-az3", change) if change else SPEC)
        prepared = prepare(
            load(tmp_path / "cut.yaml"),
            lambda plan, account: ParallelClusterBuild(plan, account, Quiet(cloud.account)),
        )
        run(prepared.steps, lambda steps, step: None, cloud.world.clock)
    clusters(cloud.account)
    assert ParallelClusterStatus(cloud.account, "cut").read() is not None
    with inside():
        logs = cloud.world.client("logs", REGION)
        logs.create_log_group(logGroupName="/aws/parallelcluster/cut-1")
        logs.create_log_stream(logGroupName="/aws/parallelcluster/cut-1", logStreamName="ip.i-0.cfn-init")
    stack_texts("cut", REGION)
    find_head("cut", REGION)
    cloud.down()
    calls = cloud.world.faults.calls[before:]
    return plan, {f"{_prefix(call['service'])}:{call['action']}" for call in calls}


@pytest.mark.parametrize("text", [BATCH, EKS, HYPERPOD, HYPERPOD_EKS], ids=["batch", "eks", "hyperpod", "hyperpod-eks"])
def test_every_call_for_the_other_platforms_is_allowed(cloud: Cloud, tmp_path: Path, text: str) -> None:
    plan = cloud.planned(tmp_path, text)
    before = len(cloud.world.faults.calls)
    cloud.up()
    platform = aws_platform(plan.spec.platform)
    assert platform is not None
    assert platform.reader("cut", cloud.account).read() is not None
    if plan.spec.platform == "batch":
        cloud.world.hold_jobs = True
        with inside():
            batch = cloud.account.client("batch")
            container = {"image": "i", "vcpus": 1, "memory": 512}
            batch.register_job_definition(
                jobDefinitionName="j", type="container", containerProperties=container, tags={CLUSTER_TAG: "cut"}
            )
            batch.submit_job(jobName="j", jobQueue="cut-train", jobDefinition="j")
    if plan.spec.platform == "hyperpod":
        way_to("cut", REGION)
    cloud.down(force=True)
    programs = ("kubectl", "helm", "git")
    calls = [call for call in cloud.world.faults.calls[before:] if call["service"] not in programs]
    wanted = permissions({f"{_prefix(call['service'])}:{call['action']}" for call in calls})
    policies = person_policies(plan)
    assert wanted - allowed(policies) == set()
    own = [
        rule for rule in needed(plan) if rule.by == "ours" and rule.when in ("batch", "eks", "hyperpod", "controller")
    ]
    specific = {action for rule in own for action in rule.actions} - set(ELSEWHERE)
    # Opening a compute environment that somebody closed, and a group that EKS left, are other tests'.
    assert specific - wanted <= {"batch:UpdateComputeEnvironment", "ec2:DeleteSecurityGroup"}
    assert not any(action.startswith(("route53:", "lambda:")) for action in allowed(policies))
    nodes = node_policies(plan)
    if plan.spec.platform.startswith("hyperpod"):
        assert {"sagemaker:CreateCluster", "iam:PassRole"} <= allowed(policies)
        assert ("ssm:StartSession" in allowed(policies)) == (plan.spec.platform == "hyperpod")
        assert set(nodes) == (
            {"nodes", "controller"} if plan.spec.platform == "hyperpod" else {"nodes", "system nodes", "jobs"}
        )
        return
    assert not any(action.startswith("ssm:") for action in allowed(policies))
    assert any(name.endswith("/AmazonSSMManagedInstanceCore") for name in nodes["nodes"]["managed"])
    if plan.spec.platform == "eks":
        objects, buckets = nodes["jobs"]["policy"]["Statement"]
        assert (objects["Resource"], buckets["Action"]) == (["arn:aws:s3:::the-data/*"], "s3:ListBucket")


def _prefix(service: str) -> str:
    return {"service-quotas": "servicequotas", "cloudwatch-logs": "logs"}.get(service, service)


def allowed(policies: list[dict[str, Any]]) -> set[str]:
    return {action for policy in policies for statement in policy["Statement"] for action in statement["Action"]}


def permissions(calls: set[str]) -> set[str]:
    return {name for call in calls for name in NAMES.get(call, [call])}


def test_every_call_is_allowed_and_nothing_of_ours_is_unused(called: tuple[ClusterPlan, set[str]]) -> None:
    plan, calls = called
    wanted = permissions(calls)
    assert wanted - allowed(person_policies(plan)) == set()
    ours = {action for rule in needed(plan) if rule.by == "ours" for action in rule.actions}
    assert wanted - ours == set(), "calls of ours stand in rules of ours"
    assert ours - wanted - set(ELSEWHERE) == set(), "granted and never called"
    assert {"cloudformation:CreateStack", "fsx:DescribeFileSystems", "s3:PutObject", "ec2:ImportKeyPair"} <= wanted


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_plan_gets_what_it_uses_in_documents_that_aws_takes(example: Path) -> None:
    plan = make_plan(load(example))
    policies = person_policies(plan, "111122223333")
    for policy in policies:
        assert len(json.dumps(policy, separators=(",", ":"))) <= LARGEST
        for statement in policy["Statement"]:
            assert not any("*" in action for action in statement["Action"])
            held = statement["Resource"] != "*" or "Condition" in statement
            assert held or all(a.split(":")[0] in ("iam", "route53", "sts", "cloudwatch") for a in statement["Action"])
    stacks = {stack.template for stack in plan.stacks}
    managed = any(item.lustre is not None and item.lustre.managed for item in plan.spec.storage)
    assert ("fsx:CreateFileSystem" in allowed(policies)) == bool(managed or stacks & {"lustre", "openzfs"})
    assert ("rds:CreateDBCluster" in allowed(policies)) == ("accounting" in stacks)
    assert ("ec2:ImportKeyPair" in allowed(policies)) == (plan.spec.head.key is not None)


def test_every_resource_of_our_stacks_has_its_calls_and_no_other_has() -> None:
    types = {
        line.split()[-1]
        for name in (
            "network",
            "bucket",
            "lustre",
            "openzfs",
            "accounting",
            "capacity",
            "directory",
            "batch",
            "karpenter",
            "role",
            *EKS_STACKS,
        )
        for line in template(name).text.splitlines()
        if line.startswith("    Type: AWS::") and not line.endswith("::Id")
    }
    ruled = {rule.by for rule in rules()} - {"ours", "pcluster"}
    assert ruled == types | {HYPERPOD_CLUSTER}, "HyperPod's own template is written with the plan"


def test_every_action_is_one_that_aws_has() -> None:
    session = botocore.session.get_session()
    services = {
        "servicequotas": "service-quotas", "elasticfilesystem": "efs", "states": "stepfunctions",
    }  # fmt: skip
    named = {permission for names in NAMES.values() for permission in names} | {
        "s3:PutEncryptionConfiguration", "s3:GetEncryptionConfiguration", "s3:PutBucketPublicAccessBlock",
        "s3:GetBucketPublicAccessBlock", "s3:PutLifecycleConfiguration", "s3:GetLifecycleConfiguration",
        "s3:GetObjectVersion", "iam:PassRole", "lambda:InvokeFunction", "cloudformation:TagResource",
    }  # fmt: skip
    for rule in rules():
        for action in rule.actions:
            service, _, operation = action.partition(":")
            model = session.get_service_model(services.get(service, service))
            known = {name.replace("20150331", "") for name in model.operation_names}
            short = {name.split("2")[0] if service == "lambda" else name for name in known}
            assert action in named or operation in known | short, action


def test_nodes_get_what_the_cluster_file_says() -> None:
    nodes = node_policies(make_plan(load(ROOT / "examples" / "p5-reservation.yaml")))
    assert set(nodes) == {"head", "queue train"}
    (statement,) = nodes["head"]["policy"]["Statement"]
    assert statement["Action"] == ["s3:Get*", "s3:List*"], "as ParallelCluster writes read access"
    assert fnmatchcase("trainwright/p5-reservation/runtime/runtime.sh", statement["Resource"][0].split("/", 1)[1])
    assert any(policy.endswith("/AmazonSSMManagedInstanceCore") for policy in nodes["head"]["managed"])


def test_the_verb_prints_policies() -> None:
    done = CliRunner().invoke(cli, ["iam", str(ROOT / "examples" / "p5-reservation.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)) == {"person", "nodes", "calls"}


def test_only_the_controller_of_hyperpod_reads_the_password_of_the_database() -> None:
    nodes = node_policies(make_plan(load(ROOT / "examples" / "hyperpod-p5.yaml")))
    assert set(nodes) == {"nodes", "controller"}
    readers = {
        who for who, role in nodes.items() for statement in role["policy"]["Statement"]
        if "secretsmanager:GetSecretValue" in statement["Action"]
    }  # fmt: skip
    assert readers == {"controller"}
    for role in nodes.values():
        assert any(name.endswith("/AmazonSageMakerClusterInstanceRolePolicy") for name in role["managed"])
        assert any("trainwright/hyperpod-p5/*" in str(s["Resource"]) for s in role["policy"]["Statement"])
