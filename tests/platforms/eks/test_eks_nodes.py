"""Where the nodes of an EKS plan come from: node groups, managed or not, or Karpenter; judged by the schemas of eksctl
and of Karpenter, and read as the machine that starts them reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from test_eks_plan import broken, cluster, objects

from crd_schema import SCHEMAS, crd_schema
from deployed_text import as_deployed
from trainwright.catalog.versions import version_set
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load

ROOT = Path(__file__).parents[3]
GROUP = "arn:aws:resource-groups:us-east-2:111122223333:group/p5"


def planned(tmp_path: Path, queue: str, **changes: str) -> ClusterPlan:
    words = {
        "name": "c", "platform": "eks", "region": "us-east-2", "queues": f"[{{name: q, {queue}}}]",
        "jobs": "[{name: j, command: [train], nodes: 2, container: i}]",
        "storage": "[{mount: /fsx, lustre: {}}, {mount: /scratch, nvme: raid0}]", **changes,
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text("".join(f"{key}: {value}\n" for key, value in words.items()))
    return make_plan(load(tmp_path / "spec.yaml"))


def karpenter(plan: ClusterPlan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one EC2NodeClass and NodePool, as their own definitions take them."""
    node_class, pool = yaml.safe_load_all(as_deployed(plan.files["kubernetes/karpenter.yaml"]))
    jsonschema.validate(node_class, crd_schema("karpenter.k8s.aws_v1_EC2NodeClass"))
    jsonschema.validate(pool, crd_schema("karpenter.sh_v1_NodePool"))
    return node_class["spec"], pool["spec"]


def bought(pool: dict[str, Any]) -> list[str]:
    [row] = [row for row in pool["template"]["spec"]["requirements"] if row["key"] == "karpenter.sh/capacity-type"]
    return list(row["values"])


@pytest.mark.parametrize(
    ("capacity", "kind", "reservations"),
    [
        ("on-demand", "on-demand", []),
        ("spot", "spot", []),
        ("{reservation: cr-0a1b2c3d4e5f67890}", "reserved", ["cr-0a1b2c3d4e5f67890"]),
        ("{block: cr-0a1b2c3d4e5f67890}", "reserved", ["cr-0a1b2c3d4e5f67890"]),
        ("{group: [cr-0a1b2c3d4e5f67890, cr-0a1b2c3d4e5f67891]}", "reserved",
         ["cr-0a1b2c3d4e5f67890", "cr-0a1b2c3d4e5f67891"]),
    ],
)  # fmt: skip
def test_karpenter_buys_what_the_queue_says(tmp_path: Path, capacity: str, kind: str, reservations: list[str]) -> None:
    plan = planned(tmp_path, f"instance: p5.48xlarge, count: {{min: 0, max: 4}}, capacity: {capacity}")
    node_class, pool = karpenter(plan)
    assert bought(pool) == [kind]
    assert [term["id"] for term in node_class.get("capacityReservationSelectorTerms", [])] == reservations
    assert ("placementGroupSelector" in node_class) == (kind != "reserved"), "reserved capacity is placed already"


def test_each_queue_of_karpenter_has_its_own_placement_group(tmp_path: Path) -> None:
    """Nodes of one group are near each other: queues that share one would compete for the same spot of a zone."""
    elastic = "instance: p5.48xlarge, count: {min: 0, max: 4}"
    reserved = "{reservation: cr-0a1b2c3d4e5f67890}"
    queues = f"[{{name: a, {elastic}}}, {{name: b, {elastic}, capacity: {reserved}}}, {{name: c, {elastic}}}]"
    plan = planned(tmp_path, elastic, queues=queues, jobs="[]")
    parts = [
        one for one in yaml.safe_load_all(plan.files["kubernetes/karpenter.yaml"]) if one["kind"] == "EC2NodeClass"
    ]
    groups = [one["spec"].get("placementGroupSelector", {}).get("name") for one in parts]
    assert groups == ["stack-output:karpenter.PlacementGroup1", None, "stack-output:karpenter.PlacementGroup2"]
    rows = json.loads(plan.files["stacks/karpenter.parameters.json"])
    assert "2" in str(rows), "and no more are made"


def test_nodes_of_karpenter_are_what_a_training_needs(tmp_path: Path) -> None:
    plan = planned(tmp_path, "instance: p5.48xlarge, count: {min: 0, max: 4}")
    node_class, pool = karpenter(plan)
    assert node_class["instanceStorePolicy"] == "RAID0"
    assert len(node_class["subnetSelectorTerms"]) == 1, "one zone: EFA and Lustre do not cross zones"
    assert node_class["associatePublicIPAddress"] is False, "EC2 gives none to a node with several cards"
    node = pool["template"]["spec"]
    assert node["expireAfter"] == "Never", "a node that trains is not replaced for its age"
    assert pool["limits"] == {"cpu": 192 * 4}
    assert {"nodes": "0", "reasons": ["Drifted", "Underutilized"]} in pool["disruption"]["budgets"]
    # Kueue's flavor names the label that the pool puts on its nodes, and jobs tolerate its taint.
    made = objects(plan)
    [flavor] = [item for item in made if item["kind"] == "ResourceFlavor"]
    labels = pool["template"]["metadata"]["labels"]
    assert labels == {**flavor["spec"]["nodeLabels"], "nvidia.com/gpu.present": "true"}
    [job] = [item for item in made if item["kind"] == "PyTorchJob"]
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["tolerations"][0]["key"] == node["taints"][0]["key"]
    asked = pod["containers"][0]["resources"]["requests"]
    assert asked["vpc.amazonaws.com/efa"] == "32"
    assert "hugepages-2Mi" not in asked, "Karpenter knows no type that has them, and starts no node"


@pytest.mark.parametrize("count", ["4", "{min: 0, max: 4}"])
def test_nothing_of_a_queue_without_efa_asks_for_it(tmp_path: Path, count: str) -> None:
    plan = planned(tmp_path, f"instance: p5.48xlarge, count: {count}, efa: false")
    assert {"PyTorchJob", "ClusterQueue"} <= {item["kind"] for item in objects(plan)}
    text = json.dumps([*objects(plan), cluster(plan), json.loads(plan.files["charts.json"])])
    assert "vpc.amazonaws.com/efa" not in text
    assert '"FI_' not in text, "libfabric would look for cards that are not there"
    assert "efa-device-plugin" not in text


def test_the_starter_of_trainium_starts_a_process_on_every_neuron_core() -> None:
    [job] = [item for item in objects(make_plan(load(ROOT / "examples/eks-trn1.yaml"))) if item["kind"] == "PyTorchJob"]
    [node] = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert node["resources"]["requests"]["aws.amazon.com/neuron"] == "16"
    assert "--nproc-per-node=32" in node["command"], "a chip of trn1 has two cores"


def test_the_cluster_knows_karpenter(tmp_path: Path) -> None:
    plan = planned(tmp_path, "instance: g5.8xlarge, count: {min: 0, max: 8}")
    config = cluster(plan)
    assert [group["name"] for group in config["managedNodeGroups"]] == ["system"], "no second owner of the nodes"
    jsonschema.Draft7Validator(json.loads((SCHEMAS / "eksctl.io_v1alpha5_ClusterConfig.json").read_text())).validate(
        config
    )
    assert config["accessConfig"]["accessEntries"][0]["type"] == "EC2_LINUX"
    assert config["iam"]["podIdentityAssociations"][-1]["serviceAccountName"] == "karpenter"
    [chart] = [one for one in json.loads(plan.files["charts.json"]) if one["name"] == "karpenter"]
    assert chart["values"]["settings"]["clusterName"] == "c"
    assert chart["values"]["settings"]["interruptionQueue"] == "c-karpenter"
    assert "QueueName: !Sub ${ClusterName}-karpenter" in plan.files["stacks/karpenter.yaml"]
    order = [plan.files["undeploy.sh"].index(words) for words in ("nodepools.karpenter", "eksctl delete cluster")]
    assert order == sorted(order), "Karpenter ends its nodes while it still runs"


@pytest.mark.parametrize(
    ("queue", "groups", "own", "pools"),
    [
        ("count: 4", 2, 0, 0),
        ("count: {min: 0, max: 4}", 1, 0, 1),
        ("count: {min: 1, max: 4}", 2, 0, 0),
        ("count: {min: 0, max: 4}, provisioner: managed", 2, 0, 0),
        ("count: 4, provisioner: self-managed", 1, 1, 0),
    ],
)
def test_every_queue_has_one_owner_of_its_nodes(tmp_path: Path, queue: str, groups: int, own: int, pools: int) -> None:
    plan = planned(tmp_path, f"instance: p4de.24xlarge, {queue}")
    config = cluster(plan)
    jsonschema.Draft7Validator(json.loads((SCHEMAS / "eksctl.io_v1alpha5_ClusterConfig.json").read_text())).validate(
        config
    )
    assert len(config["managedNodeGroups"]) == groups
    assert len(config.get("nodeGroups", [])) == own
    assert sum(item["kind"] == "NodePool" for item in objects(plan)) == pools


def test_kueue_knows_where_nodes_are_that_say_so(tmp_path: Path) -> None:
    """Not where nodes come only with a job: Kueue admits by topology what fits on nodes that are there."""
    plan = planned(tmp_path, "instance: p5.48xlarge, count: 4")
    made = objects(plan)
    [topology] = [item for item in made if item["kind"] == "Topology"]
    jsonschema.validate(topology, crd_schema("kueue.x-k8s.io_v1beta2_Topology"))
    labels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert labels == [*(f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3)), "kubernetes.io/hostname"]
    [flavor] = [item for item in made if item["kind"] == "ResourceFlavor"]
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    [job] = [item for item in made if item["kind"] == "PyTorchJob"]
    notes = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert list(notes.values()) == [labels[2]]
    for queue in ("instance: p5.48xlarge, count: {min: 0, max: 4}", "instance: g5.8xlarge, count: 4"):
        text = json.dumps(objects(planned(tmp_path, queue)))
        assert "opology" not in text.replace("topologyKey", "")


def test_a_self_managed_group_buys_spot_in_its_own_words(tmp_path: Path) -> None:
    plan = planned(tmp_path, "instance: p4d.24xlarge, count: 2, capacity: spot, provisioner: self-managed")
    [group] = cluster(plan)["nodeGroups"]
    assert "spot" not in group
    assert "nodeRepairConfig" not in group, "EKS repairs nodes of managed groups only"
    assert group["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"] == 0


def test_trainium_nodes_have_their_plugin_and_jobs_ask_for_what_it_offers(tmp_path: Path) -> None:
    plan = planned(tmp_path, "instance: trn1.32xlarge, count: 2")
    made = objects(plan)
    [plugin] = [item for item in made if item["kind"] == "DaemonSet"]
    text = json.dumps(plugin)
    assert "trn1.32xlarge" in text
    [job] = [item for item in made if item["kind"] == "PyTorchJob"]
    asked = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert asked["aws.amazon.com/neuron"] == "16"
    assert "hugepages-2Mi" not in asked, "nobody says that the Neuron image reserves them"
    [queue] = [item for item in made if item["kind"] == "ClusterQueue"]
    assert set(asked) <= set(queue["spec"]["resourceGroups"][0]["coveredResources"]), "Kueue would never admit it"
    assert "--install-neuron-plugin=false" in plan.files["deploy.sh"]


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("count: 4, provisioner: karpenter", "keeps no node up without a job"),
        (f"count: {{min: 0, max: 4}}, capacity: {{group: '{GROUP}'}}", "by their ids"),
        ("count: 4, provisioner: self-managed, capacity: {reservation: cr-0a1b2c3d4e5f67890}", "new placement group"),
    ],
)
def test_what_a_provisioner_cannot_do_is_found(tmp_path: Path, queue: str, words: str) -> None:
    assert words in broken(tmp_path, queues=f"[{{name: q, instance: p5.48xlarge, {queue}}}]")


def test_nodes_of_karpenter_have_one_image_and_the_tags_of_the_spec(tmp_path: Path) -> None:
    node_class, _ = karpenter(planned(tmp_path, "instance: g5.8xlarge, count: {min: 0, max: 2}", tags="{team: a}"))
    assert node_class["amiSelectorTerms"] == [{"alias": f"al2023@{version_set().eks_image}"}]
    assert re.fullmatch(r"v\d{8}", version_set().eks_image)
    own = {"trainwright:cluster": "c", "trainwright:queue": "q"}
    assert node_class["tags"] == {"team": "a", **own}, "Karpenter puts them on instances, volumes and interfaces"
    groups = cluster(planned(tmp_path, "instance: p4d.24xlarge, count: 2", tags="{team: a}"))["managedNodeGroups"]
    assert groups[1]["tags"] == {"team": "a", **own}, "and eksctl into its launch template"
