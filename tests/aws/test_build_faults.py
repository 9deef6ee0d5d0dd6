"""`up` and `down` against an AWS that is busy, lost, refuses or fails: what the user is told, and that the next run
ends where an undisturbed one does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from standin.faults import Failure, Rule
from standin.harness import REGION, SPEC, Cloud

from trainwright.aws.session import AwsRefused, AwsUnreachable
from trainwright.errors import UserError
from trainwright.platforms.apply.build import refuse_impossible
from trainwright.platforms.apply.steps import PATIENCE, BuildFailed
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild

SLOW = pytest.mark.slow
_whole: dict[str, list[str]] = {}


@pytest.fixture
def whole(cloud: Cloud, tmp_path: Path) -> dict[str, list[str]]:
    """What an undisturbed `up` makes, the same for every test; the cluster is down."""
    cloud.planned(tmp_path)
    if not _whole:
        cloud.up()
        _whole.update(cloud.census())
        cloud.down()
    return _whole


def same(cloud: Cloud, whole: dict[str, list[str]]) -> bool:
    """Whether the account is as after an undisturbed `up`; each network that was up leaves its flow logs."""
    now = cloud.census()
    return all(now[kind] == whole[kind] for kind in whole if kind != "log group")


@pytest.mark.parametrize(
    "kind", ["throttle", "lost", *(pytest.param(k, marks=SLOW) for k in ("500", "503", "unreachable"))]
)
def test_a_busy_aws_only_takes_longer(cloud: Cloud, whole: dict[str, list[str]], kind: str) -> None:
    cloud.world.faults.rules = [Rule(kind, service, times=3, skip=skip) for service, skip in _PLACES]
    cloud.up()
    assert same(cloud, whole)
    cloud.world.faults.rules = [Rule(kind, service, times=3, skip=skip) for service, skip in _PLACES]
    cloud.down()
    assert cloud.census()["stack"] == []


_PLACES = [("cloudformation", 0), ("cloudformation", 12), ("s3", 0), ("ec2", 0), ("fsx", 1)]


@SLOW
def test_a_network_that_is_gone_for_minutes_is_waited_for(cloud: Cloud, whole: dict[str, list[str]]) -> None:
    cloud.world.faults.rules = [Rule("unreachable", "*", skip=9, times=30)]
    cloud.up()
    assert same(cloud, whole)


def test_a_network_that_stays_away_ends_the_run_and_not_the_cluster(cloud: Cloud, whole: dict[str, list[str]]) -> None:
    cloud.world.faults.rules = [Rule("unreachable", "*", skip=9, times=-1)]
    began = cloud.world.clock.now()
    with pytest.raises(AwsUnreachable, match="could not be reached"):
        cloud.up()
    assert cloud.world.clock.now() - began > PATIENCE
    cloud.world.faults.rules = []
    cloud.up()
    assert same(cloud, whole)


@pytest.mark.parametrize(
    ("verb", "kind", "fix"),
    [
        ("up", "expired", "log in again"),
        ("up", "skew", "clock"),
        pytest.param("up", "revoked", "log in again", marks=SLOW),
        pytest.param("up", "denied", "ask for", marks=SLOW),
        pytest.param("down", "revoked", "log in again", marks=SLOW),
    ],
)
def test_credentials_that_stop_working(
    cloud: Cloud, whole: dict[str, list[str]], kind: str, fix: str, verb: str
) -> None:
    if verb == "down":
        cloud.up()
    cloud.world.faults.rules = [Rule(kind, "*", skip=14, times=-1)]
    with pytest.raises(AwsRefused) as refused:
        getattr(cloud, verb)()
    assert fix in refused.value.fix
    cloud.world.faults.rules = []
    getattr(cloud, verb)()
    assert same(cloud, whole) if verb == "up" else not cloud.census()["stack"]


@pytest.mark.parametrize(
    ("stack", "logical", "reason"),
    [
        pytest.param("cut-network", "NatGateway", "The maximum number of NAT gateways has been reached.", marks=SLOW),
        ("cut-lustre-fsx", "BucketLink", "The bucket cannot be accessed"),
        pytest.param("cut", "HeadNode", "We currently do not have sufficient m5.8xlarge capacity", marks=SLOW),
        ("cut", "HeadNodeWaitCondition", "WaitCondition timed out. Received 0 conditions when expecting 1"),
    ],
)
def test_a_stack_that_rolls_back_names_its_cause_and_is_made_again(
    cloud: Cloud, whole: dict[str, list[str]], stack: str, logical: str, reason: str
) -> None:
    cloud.world.faults.failures = [Failure(stack, logical, "create", reason)]
    with pytest.raises(BuildFailed) as failed:
        cloud.up()
    assert reason in failed.value.what
    assert logical in failed.value.what
    cloud.up()
    assert same(cloud, whole), "nothing of the failed attempt is left, and nothing was made twice"


@pytest.mark.parametrize(
    ("stack", "logical"),
    [
        ("cut-network", "Vpc"),
        pytest.param("cut-lustre-fsx", "SecurityGroup", marks=SLOW),
        pytest.param("cut", "HeadNode", marks=SLOW),
    ],
)
def test_a_deletion_that_fails_is_said_and_tried_again(
    cloud: Cloud, whole: dict[str, list[str]], stack: str, logical: str
) -> None:
    cloud.up()
    cloud.world.faults.failures = [Failure(stack, logical, "delete", "resource has a dependent object", times=1)]
    with pytest.raises(BuildFailed, match="could not be deleted"):
        cloud.down()
    cloud.down()
    left = {kind: names for kind, names in cloud.census().items() if names and kind != "log group"}
    assert set(left) == {"bucket"}, left


def test_two_people_at_once(cloud: Cloud, whole: dict[str, list[str]]) -> None:
    """Every call of one run is followed by a whole run of somebody else, until that one is through."""
    other: list[str] = []

    def somebody_else(number: int, service: str, action: str, when: str) -> None:
        if when == "before" and action in ("CreateStack", "ImportKeyPair", "PutObject") and len(other) < 3:
            other.append(action)
            cloud.world.faults.watch = None
            cloud.up()
            cloud.world.faults.watch = somebody_else

    cloud.world.faults.watch = somebody_else
    cloud.up()
    cloud.world.faults.watch = None
    assert other
    assert same(cloud, whole)


def test_data_is_kept_unless_it_is_named(cloud: Cloud, whole: dict[str, list[str]]) -> None:
    cloud.up()
    assert cloud.down(data=False) == ["bucket", "lustre-fsx", "network"]
    census = cloud.census()
    assert census["file system"] == ["LUSTRE 1200 AVAILABLE x1"]
    assert census["link"] == ["s3://the-data AVAILABLE x1"]
    assert census["instance"] == census["key"] == []
    cloud.up()
    assert same(cloud, whole), "the kept stacks are used again"


def test_a_directory_of_users_goes_before_the_network_it_is_in(cloud: Cloud, tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl a"
    cloud.planned(tmp_path, SPEC + f'directory: true\nusers:\n  - {{name: ann, uid: 5001, keys: ["{key}"]}}\n')
    cloud.up()
    assert "cut-directory CREATE_COMPLETE x1" in cloud.census()["stack"]
    cloud.down()
    assert cloud.census()["stack"] == []


def test_an_unchanged_cluster_is_not_touched(cloud: Cloud, whole: dict[str, list[str]]) -> None:
    cloud.up()
    before = cloud.calls()
    cloud.up()
    actions = {call["action"] for call in cloud.world.faults.calls[before:]}
    assert all(a.startswith(("Describe", "Get", "List", "Head")) for a in actions), actions
    assert cloud.calls() - before < 20


def test_a_changed_spec_is_shown_first_and_applied(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    cloud.up()
    grown = cloud.planned(tmp_path, SPEC.replace("1.2TiB", "2.4TiB").replace("count: 2", "count: {min: 2, max: 2}"))
    build = ParallelClusterBuild(grown, cloud.account, None)  # type: ignore[arg-type]
    changes = build.changes(build.existing())
    assert [(c.path, c.old, c.new, c.effect) for c in changes.changes] == [("Capacity", "1200", "2400", "live")]
    assert not refuse_impossible(changes, force=False)
    cloud.up(grown)
    assert cloud.census()["file system"] == ["LUSTRE 2400 AVAILABLE x1"]
    assert cloud.census()["change set"] == []


def test_what_cannot_change_is_refused_before_anything_happens(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    cloud.up()
    moved = cloud.planned(tmp_path, SPEC.replace("use2-az3", "use2-az2"))
    build = ParallelClusterBuild(moved, cloud.account, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cannot be changed on a cluster that is up"):
        refuse_impossible(build.changes(build.existing()), force=True)
    # Somebody who goes on all the same loses no data: the change set says what it would replace.
    order = next(order for order in build.orders() if order.key == "lustre-fsx")
    scratch = replace(order, parameters={**order.parameters, "DeploymentType": "SCRATCH_2"})
    step = next(step for step in build.steps() if step.key == "lustre-fsx")
    step.order = scratch  # type: ignore[attr-defined]
    build.outputs["network"] = dict(build.existing()["network"].outputs)
    assert not step.advance(), "the change set is made"
    with pytest.raises(BuildFailed, match="a new, empty one would be made"):
        step.advance()


def test_polling_backs_off(cloud: Cloud, tmp_path: Path) -> None:
    """No stack is asked about itself more than once a second, and long waits ask less often; what needs nothing of
    another stack begins with it."""
    cloud.world.clock.pace = 1.0
    cloud.planned(tmp_path)
    cloud.up()
    up = cloud.calls()
    begun = {c["detail"]: c["time"] for c in cloud.world.faults.calls if c["action"] == "CreateStack"}
    assert abs(begun["cut-bucket"] - begun["cut-network"]) < 1.0
    looks = _looks(cloud, 0)
    assert set(looks) == {"cut", "cut-bucket", "cut-network", "cut-lustre-fsx"}
    looks["cut"].pop(0)  # whether pcluster is needed
    for stack, times in looks.items():
        assert max(later - earlier for earlier, later in pairwise(times)) <= 21.0, stack
    long = looks["cut-lustre-fsx"]
    assert len(long) < (long[-1] - long[0]) / 10, "a file system takes a quarter of an hour"
    cloud.down()
    for stack, times in (*looks.items(), *_looks(cloud, up).items()):
        assert min(later - earlier for earlier, later in pairwise(times)) >= 1.0, stack


def _looks(cloud: Cloud, first: int) -> dict[str, list[float]]:
    """Stack -> when it was asked about itself, from that call on."""
    looks: dict[str, list[float]] = {}
    for call in cloud.world.faults.calls[first:]:
        if call["action"] in ("DescribeStacks", "DescribeStackResources") and call["detail"]:
            looks.setdefault(call["detail"], []).append(call["time"])
    return looks


def test_no_secret_and_tags_on_everything(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    cloud.up()
    for stack in cloud.world.region(REGION).stacks.values():
        assert stack.tags["trainwright:cluster"] == "cut"
    (private,) = (tmp_path / "home" / "keys").glob("my-key.us-east-2")
    assert private.stat().st_mode & 0o777 == 0o600
    secret = private.read_text().splitlines()[1]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != private:
            assert secret not in path.read_text(errors="replace"), path
    ec2, s3 = (cloud.world.client(name, REGION) for name in ("ec2", "s3"))
    (key,) = ec2.describe_key_pairs()["KeyPairs"]
    assert {"Key": "trainwright:cluster", "Value": "cut"} in key["Tags"]
    (bucket,) = [row["Name"] for row in s3.list_buckets()["Buckets"] if row["Name"].startswith("cut-")]
    block = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert all(block.values())
    assert "aws:SecureTransport" in s3.get_bucket_policy(Bucket=bucket)["Policy"]
    assert json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"][0]["Effect"] == "Deny"
    assert s3.get_bucket_encryption(Bucket=bucket)
