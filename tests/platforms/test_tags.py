"""The tags of a spec reach what costs: the machines, disks and network interfaces of every platform, and its jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from yaml.nodes import MappingNode, ScalarNode

from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load
from trainwright.stacks.library import template, template_names

ROOT = Path(__file__).parents[2]
KEY, VALUE = "cost centre", 'a "b" €'
STARTED_LATER = ("batch", "eks-nodes", "directory")  # templates whose machines no stack makes
STARTERS = {"batch": "batch-p4d", "eks": "eks-p5-block", "hyperpod": "hyperpod-p5", "hyperpod-eks": "hyperpod-eks-p5"}


class Loader(yaml.SafeLoader):
    """CloudFormation's functions mean nothing here."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: _plain(loader, node))


def _plain(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    return loader.construct_mapping(node) if isinstance(node, MappingNode) else loader.construct_sequence(node)


def plan_of(platform: str, folder: Path) -> ClusterPlan:
    text = (ROOT / "examples" / f"{STARTERS[platform]}.yaml").read_text()
    (folder / "spec.yaml").write_text(f"{text}\ntags: {{{KEY}: {json.dumps(VALUE, ensure_ascii=False)}, Name: x}}\n")
    return make_plan(load(folder / "spec.yaml"))


def launch_tags(text: str) -> dict[str, list[dict[str, str]]]:
    resources = yaml.load(text, Loader)["Resources"].values()
    [launch] = [row for row in resources if row["Type"] == "AWS::EC2::LaunchTemplate"]
    return {row["ResourceType"]: row["Tags"] for row in launch["Properties"]["LaunchTemplateData"]["TagSpecifications"]}


def test_every_template_that_starts_machines_has_a_place_for_tags() -> None:
    assert {name for name in template_names() if "AWS::EC2::LaunchTemplate" in template(name).text} == {*STARTED_LATER}
    for name in STARTED_LATER:
        kinds = launch_tags(template(name).tagged({KEY: VALUE}))
        assert {"volume", "network-interface"} <= set(kinds)
        assert all({"Key": KEY, "Value": VALUE} in rows for rows in kinds.values()), name


@pytest.mark.parametrize("platform", STARTERS)
def test_the_spec_s_tags_are_on_what_the_plan_makes(platform: str, tmp_path: Path) -> None:
    plan = plan_of(platform, tmp_path)
    written = json.dumps({KEY: VALUE}, ensure_ascii=False)[1:-1]
    if platform == "batch":
        for rows in launch_tags(plan.files["stacks/batch-train.yaml"]).values():
            assert {"Key": KEY, "Value": VALUE} in rows
            assert len({row["Key"] for row in rows}) == len(rows), "EC2 refuses a key that is there twice"
        [job] = [json.loads(text) for name, text in plan.files.items() if name.startswith("jobs/")]
        assert written in json.dumps(job["tags"], ensure_ascii=False)
        assert job["propagateTags"] is True
    if "eks" in platform:
        assert {KEY: VALUE}.items() <= yaml.safe_load(plan.files["cluster.yaml"])["metadata"]["tags"].items()
    if platform == "eks":
        nodes = [text for name, text in plan.files.items() if "without-eksctl/nodes" in name and name.endswith(".yaml")]
        assert nodes
        assert all({"Key": KEY, "Value": VALUE} in rows for text in nodes for rows in launch_tags(text).values())
    if platform.startswith("hyperpod"):
        made = next(text for text in plan.files.values() if "AWS::SageMaker::Cluster" in text)
        cluster = yaml.load(made, Loader)["Resources"]["Cluster"]["Properties"]
        assert {"Key": KEY, "Value": VALUE} in cluster["Tags"]
    assert f"trainwright:platform={platform}" in plan.files["deploy.sh"], "`down` has to know what it removes"
    assert KEY in plan.files["deploy.sh"]
