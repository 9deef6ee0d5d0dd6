"""Every example's cluster file, with the ids that its stacks would give, before ParallelCluster's own schema and
validators. Each message that remains is accounted for by the name of its validator."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from judges.pcluster import ROOT, Message, processes, validate, validate_text
from judges.random_specs import random_spec
from judges.world import World
from trainwright.errors import UserError
from trainwright.platforms.parallelcluster.updates import policies
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load
from trainwright.stacks.library import template
from trainwright.stacks.references import fill

pytestmark = pytest.mark.judge

EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.yaml")) if "platform: parallelcluster" in path.read_text()
]

# Messages that are true and meant: the spec asked for it.
MEANT = {
    "DetailedMonitoringValidator": ("WARNING", {"monitored"}),
    "EfaPlacementGroupValidator": ("WARNING", {"p5-reservation", "p5-reservation-group"}),
    "DeletionPolicyValidator": ("INFO", {"roberta"}),
    "EfaValidator": ("WARNING", {"p4de-train-g5-infer"}),  # `efa: false`: its jobs fit on one node
}


def filled(example: Path) -> tuple[ClusterPlan, str]:
    """The plan of an example and its cluster file with real ids in it."""
    plan = make_plan(load(example))
    return plan, fill(plan.files["cluster.yaml"], World(processes().endpoint, plan).build())


@pytest.fixture(scope="module")
def clusters(pcluster_bin: Path) -> dict[str, tuple[ClusterPlan, str]]:
    return {example.stem: filled(example) for example in EXAMPLES}


@pytest.mark.parametrize("name", [example.stem for example in EXAMPLES])
def test_schema_and_validators_have_nothing_against_an_example(
    name: str, clusters: dict[str, tuple[ClusterPlan, str]]
) -> None:
    plan, text = clusters[name]
    messages = [(m.validator_type, m.level) for m in validate_text(text, plan.spec.name)]
    expected = [(validator, level) for validator, (level, names) in MEANT.items() if name in names]
    assert sorted(messages) == sorted(expected)


@pytest.mark.parametrize("name", ["p5-reservation", "p4de-boot-scripts"])
def test_the_command_line_agrees(
    name: str, clusters: dict[str, tuple[ClusterPlan, str]], pcluster_bin: Path, tmp_path: Path
) -> None:
    """The worker calls what the command calls; this is the proof."""
    plan, text = clusters[name]
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    cluster = [
        "--cluster-name",
        plan.spec.name,
        "--cluster-configuration",
        str(path),
        "--region",
        str(plan.spec.region),
    ]
    done = subprocess.run(
        [str(pcluster_bin / "pcluster"), "create-cluster", "--dryrun", "true", *cluster],
        capture_output=True,
        text=True,
        check=False,
        env=processes().environ() | {"HOME": str(tmp_path)},
    )
    answer = json.loads(done.stdout)
    assert answer["message"] == "Request would have succeeded, but DryRun flag is set."
    messages = [Message(m["level"], m["type"], m["message"]) for m in answer.get("validationMessages", [])]
    assert messages == validate_text(text, plan.spec.name)


SEVERAL_ZONES = """\
name: zones
platform: parallelcluster
region: us-west-2
queues:
  - {name: any, instance: g5.4xlarge, count: {min: 0, max: 4}}
  - {name: one, instance: g5.48xlarge, count: 2}
network: {zones: 3}
storage:
  - {mount: /fsx, lustre: {}}
  - {mount: /apps, ebs: {capacity: 100GiB}}
"""


def test_a_cluster_in_several_zones_is_accepted(pcluster_bin: Path, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SEVERAL_ZONES)
    messages = {(m.validator_type, m.level) for m in validate_text(filled(path)[1], "zones")}
    assert messages == {
        ("UnmanagedFsxMultiAzValidator", "INFO"),  # zones were asked for; traffic between them is slower and billed
        ("MultiAzRootVolumeValidator", "INFO"),
        ("MultiAzEbsVolumeValidator", "INFO"),
        ("DeletionPolicyValidator", "INFO"),  # the EBS volume is kept, which is meant
        ("KeyPairValidator", "WARNING"),  # no key: Session Manager
    }


def broken(text: str, change: str) -> str:
    """A good cluster file with one mistake in it."""
    data = yaml.safe_load(text)
    queue = data["Scheduling"]["SlurmQueues"][0]
    resource = queue["ComputeResources"][0]
    if change == "efa on a type without it":
        resource |= {"InstanceType": "c5.large"}
        resource.pop("CustomSlurmSettings")
    elif change == "unknown key":
        queue["Instance"] = "p5.48xlarge"
    elif change == "duplicate mount":
        data["SharedStorage"][1]["MountDir"] = data["SharedStorage"][0]["MountDir"]
    elif change == "rsa key":
        data["HeadNode"]["Ssh"]["KeyName"] = "an-rsa-key"
    elif change == "more nodes than reserved":
        resource |= {"MinCount": 9, "MaxCount": 9}
    return yaml.safe_dump(data)


@pytest.mark.parametrize(
    ("change", "validator"),
    [
        ("efa on a type without it", "EfaValidator"),
        ("unknown key", "ConfigSchemaValidator"),
        ("duplicate mount", "DuplicateMountDirValidator"),
        ("rsa key", "KeyPairValidator"),
        ("more nodes than reserved", "CapacityReservationSizeValidator"),
    ],
)
def test_the_judge_sees_mistakes(
    change: str, validator: str, clusters: dict[str, tuple[ClusterPlan, str]], tmp_path: Path
) -> None:
    """A judge that passes everything would prove nothing."""
    path = tmp_path / "cluster.yaml"
    path.write_text(broken(clusters["p5-reservation"][1], change))
    assert validator in {m.validator_type for m in validate(path) if m.level == "ERROR"}


def test_update_policies_are_those_of_parallelcluster(pcluster_bin: Path) -> None:
    script = ROOT / "tests" / "judges" / "update_policies.py"
    command = [str(pcluster_bin / "python"), "-P", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(",") for line in done.stdout.splitlines()[1:]]
    assert dict(rows) == policies()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_a_plan_of_a_spec_by_chance_is_accepted(seed: int, pcluster_bin: Path, tmp_path: Path) -> None:
    """What `plan` does not refuse, ParallelCluster must not refuse either."""
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(random_spec(seed), sort_keys=False))
    try:
        plan, text = filled(path)
    except UserError:
        return
    errors = [m for m in validate_text(text, plan.spec.name) if m.level == "ERROR"]
    assert errors == []


def test_the_s3_endpoint_admits_every_bucket_that_the_package_names(pcluster_bin: Path) -> None:
    """What nodes fetch from S3 and put there on their way up, read from ParallelCluster's own sources."""
    (package,) = pcluster_bin.parent.glob("lib/python3*/site-packages/pcluster")
    sources = [path for path in (package / "resources").rglob("*") if path.suffix in (".sh", ".yaml", ".json")]
    named: set[str] = set()
    for path in sources:
        if "batch" not in path.parts:  # ParallelCluster 3.16 builds clusters with Slurm only
            named |= set(re.findall(r"([\w${}:.-]+)\.s3\.[$A-Za-z]", path.read_text(errors="replace")))
    buckets = {name.rpartition("/")[2].replace("${AWS::Region}", "us-east-2") for name in named}
    assert buckets == {"us-east-2-aws-parallelcluster"}, "a new one: is it only read? Then the policy admits it"
    signal = (package / "resources/head_node/user_data.sh").read_text()
    assert "cfn-signal" in signal, "the wait condition's bucket, by a presigned URL"
    policy = template("network").text
    assert "cloudformation-waitcondition-${AWS::Region}/*" in policy
    reads = policy[policy.index("Sid: PublicReads") :].split("Sid:")[1]
    assert 'Action: s3:GetObject\n            Resource: "*"' in reads
