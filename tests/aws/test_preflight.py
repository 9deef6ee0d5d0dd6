"""What `up` asks AWS before it makes anything, each question with an account in which the answer is no."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin.harness import REGION, SPEC, Cloud
from standin.tool import StandInTool

from trainwright.aws.cluster_logs import stack_texts
from trainwright.platforms.apply.answers import Answer
from trainwright.platforms.apply.preflight import preflight
from trainwright.platforms.apply.prepare import Prepared, prepare
from trainwright.platforms.apply.steps import BuildFailed
from trainwright.platforms.parallelcluster.apply.build import ParallelClusterBuild
from trainwright.spec.load import load

GROUP = "arn:aws:resource-groups:us-east-2:123456789012:group/ours"
RESERVED = "{reservation: cr-0a1b2c3d4e5f67890}"


def prepared(cloud: Cloud, folder: Path, text: str = SPEC) -> Prepared:
    (folder / "cut.yaml").write_text(text)
    return prepare(
        load(folder / "cut.yaml"), lambda plan, account: ParallelClusterBuild(plan, account, StandInTool(cloud.account))
    )


def answers(made: Prepared, question: str) -> list[Answer]:
    return [answer for answer in made.answers if answer.question == question]


def asked(cloud: Cloud, question: str) -> list[Answer]:
    """The answers to one question about the plan of this test."""
    assert cloud.plan is not None
    build = ParallelClusterBuild(cloud.plan, cloud.account, StandInTool(cloud.account))
    given = preflight(cloud.account, cloud.plan, build.questions())
    return [answer for answer in given if answer.question == question]


def test_an_account_that_has_all_of_it(cloud: Cloud, tmp_path: Path) -> None:
    made = prepared(cloud, tmp_path)
    assert {answer.verdict for answer in made.answers} == {"pass"}, made.answers
    expected = {
        "credentials",
        "zone",
        "offering",
        "quota",
        "reservation",
        "bucket",
        "file systems",
        "image",
        "pcluster",
    }
    assert {answer.question for answer in made.answers} == expected


def test_fsx_must_allow_the_file_systems(cloud: Cloud, tmp_path: Path) -> None:
    cloud.world.fsx_quotas["Lustre Persistent 2 file systems"] = 0.0
    with pytest.raises(BuildFailed, match="0 file systems allowed, 1 with this cluster; ask AWS for more"):
        prepared(cloud, tmp_path)
    cloud.planned(tmp_path)
    cloud.world.fsx_quotas = {"Lustre Persistent 2 file storage capacity": 1000.0}
    assert [answer.verdict for answer in asked(cloud, "file systems")] == ["pass", "fail"]


def test_file_systems_of_this_cluster_are_not_counted_twice(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path)
    cloud.up()
    cloud.world.fsx_quotas["Lustre Persistent 2 file systems"] = 1.0
    made = prepared(cloud, tmp_path)
    assert made.unchanged
    assert [answer.verdict for answer in answers(made, "file systems")] == ["pass", "pass"]


def test_images_of_parallelcluster_and_of_the_user(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, SPEC.replace("ubuntu2204", "ubuntu2404"))
    missing = "us-east-2 has no image of ParallelCluster 3.16.1 for ubuntu2404, x86_64"
    assert asked(cloud, "image") == [Answer("image", "fail", missing)]
    cloud.planned(tmp_path, SPEC.replace("ubuntu2204,", "ubuntu2204, image: ami-0aa00000000000000,"))
    (answer,) = asked(cloud, "image")
    assert (answer.verdict, "does not say its ParallelCluster version" in answer.words) == ("warn", True)


def test_members_of_a_group_are_of_the_type_and_in_the_zone(cloud: Cloud, tmp_path: Path) -> None:
    cloud.planned(tmp_path, SPEC.replace(RESERVED, f'{{group: "{GROUP}"}}'))
    arn = "arn:aws:ec2:us-east-2:123456789012:capacity-reservation/"
    assert "holds no reservation" in asked(cloud, "reservation")[0].words
    cloud.world.group_members["ours"] = [f"{arn}cr-0a1b2c3d4e5f67890"]
    assert [answer.verdict for answer in asked(cloud, "reservation")] == ["pass"]
    for number, (type_, zone, state, words) in enumerate([
        ("p4d.24xlarge", "use2-az3", "active", "holds p4d.24xlarge, not p5.48xlarge"),
        ("p5.48xlarge", "use2-az1", "active", "is in use2-az1, and its nodes would be in use2-az3"),
        ("p5.48xlarge", "use2-az3", "expired", "is expired"),
    ]):  # fmt: skip
        id = f"cr-0a1b2c3d4e5f6789{number + 1}"
        cloud.world.reserve(id, type_, zone, 2, REGION, State=state)
        cloud.world.group_members["ours"][1:] = [f"{arn}{id}"]
        (failed,) = [answer for answer in asked(cloud, "reservation") if answer.verdict == "fail"]
        assert words in failed.words


def test_an_open_zone_must_be_that_of_the_reservation(cloud: Cloud, tmp_path: Path) -> None:
    cloud.world.reserve("cr-0a1b2c3d4e5f67899", "p5.48xlarge", "use2-az2", 2, REGION)
    text = SPEC.replace("zone: use2-az3", "").replace("cr-0a1b2c3d4e5f67890", "cr-0a1b2c3d4e5f67899")
    cloud.planned(tmp_path, text)
    assert "write `zone: use2-az2`" in asked(cloud, "reservation")[0].words


def test_an_open_zone_stays_where_the_network_is(cloud: Cloud, tmp_path: Path) -> None:
    """The catalog would choose another zone for a g5; the network that is there decides."""
    plain = SPEC.replace("p5.48xlarge", "g5.48xlarge").replace(RESERVED, "on-demand")
    before = plain.replace("use2-az3", "use2-az2")
    cloud.planned(tmp_path, before)
    cloud.up()
    made = prepared(cloud, tmp_path, plain.replace("zone: use2-az3", ""))
    assert made.unchanged, made.changes
    assert "use2-az2 is us-east-2" in answers(made, "zone")[0].words


def test_ec2_starts_no_node_in_a_reservation_of_another_zone(cloud: Cloud, tmp_path: Path) -> None:
    """Somebody who builds past the question: the nodes do not start, and the log of the head node says why."""
    cloud.planned(tmp_path)
    cloud.world.reserve("cr-0a1b2c3d4e5f67890", "p5.48xlarge", "use2-az1", 2, REGION)
    cloud.up()
    assert cloud.census()["instance"] == ["m5.8xlarge running x1"]
    texts = stack_texts("cut", REGION)
    assert "does not match the Capacity Reservation cr-0a1b2c3d4e5f67890" in "".join(texts.values())
