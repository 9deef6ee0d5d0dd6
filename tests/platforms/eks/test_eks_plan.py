"""Plans for EKS, judged by the schemas of those who read them: eksctl's own (unknown keys refused), the custom resource
definitions of Kueue and Kubeflow, and Kubernetes' core kinds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models.trainer_v1alpha1_cluster_training_runtime import TrainerV1alpha1ClusterTrainingRuntime

from crd_schema import SCHEMAS, crd_schema
from deployed_text import as_deployed
from trainwright.check.gate import CheckFailed
from trainwright.platforms.eks.nodegroups import QUEUE_LABEL
from trainwright.platforms.eks.own_stacks import own_stacks
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import wire
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("eks-*.yaml"))
WITH_HYPERPOD = [*EXAMPLES, ROOT / "examples/hyperpod-eks-p5.yaml"]


@cache
def plan_of(example: Path) -> ClusterPlan:
    return make_plan(load(example))


def cluster(plan: ClusterPlan) -> dict[str, Any]:
    return yaml.safe_load(plan.files["cluster.yaml"])


def objects(plan: ClusterPlan) -> list[dict[str, Any]]:
    names = [name for name in plan.files if name.startswith(("kubernetes/", "jobs/"))]
    return [item for name in names for item in yaml.safe_load_all(as_deployed(plan.files[name]))]


@pytest.mark.parametrize("example", WITH_HYPERPOD, ids=lambda path: path.stem)
def test_eksctl_knows_every_key(example: Path) -> None:
    schema = json.loads((SCHEMAS / "eksctl.io_v1alpha5_ClusterConfig.json").read_text())
    # Its own references hold letters that a strict reader of URIs refuses: the schema itself is not judged.
    judge = jsonschema.validators.validator_for(schema)(schema)
    judge.validate(cluster(plan_of(example)))
    with pytest.raises(jsonschema.ValidationError):
        judge.validate({**cluster(plan_of(example)), "nodegroups": []})


@pytest.mark.parametrize("example", WITH_HYPERPOD, ids=lambda path: path.stem)
def test_every_object_is_of_a_kind_that_takes_it(example: Path) -> None:
    for item in objects(plan_of(example)):
        group = item["apiVersion"].partition("/")[0]
        if group in ("v1", "apps", "rbac.authorization.k8s.io"):
            kubernetes_validate.validate(item, "1.35", strict=True)
            continue
        name = f"{item['apiVersion'].replace('/', '_')}_{item['kind']}"
        jsonschema.validate(item, crd_schema(name))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_jobs_find_what_the_plan_makes(example: Path) -> None:
    """The claims that jobs mount exist, the account they run as too, and nodes of the type that they ask for."""
    plan = plan_of(example)
    made = objects(plan)
    claims = {item["metadata"]["name"] for item in made if item["kind"] == "PersistentVolumeClaim"}
    accounts = {"", *(a["serviceAccountName"] for a in cluster(plan)["iam"]["podIdentityAssociations"])}
    types = {group["instanceType"] for group in cluster(plan)["managedNodeGroups"]}
    pools = [item["spec"]["template"]["spec"]["requirements"] for item in made if item["kind"] == "NodePool"]
    types |= {each for rows in pools for row in rows if "instance-type" in row["key"] for each in row["values"]}
    pods = [
        spec["template"]["spec"]
        for item in made if item["kind"] == "PyTorchJob"
        for spec in item["spec"]["pytorchReplicaSpecs"].values()
    ]  # fmt: skip
    assert pods
    for pod in pods:
        mounted = {v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
        assert mounted <= claims
        assert pod.get("serviceAccountName", "") in accounts
        assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] in types


def test_the_nodes_of_a_block_wait_for_it_and_have_all_cards() -> None:
    group = cluster(plan_of(ROOT / "examples/eks-p5-block.yaml"))["managedNodeGroups"][1]
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (0, 0, 4)
    assert group["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert group["efaEnabled"]
    assert "placement" not in group
    assert len(group["subnets"]) == 1
    assert yaml.safe_load(group["overrideBootstrapCommand"])["spec"]["instance"]["localStorage"] == {
        "strategy": "RAID0"
    }


def test_the_control_plane_gets_a_second_zone_beside_the_one_that_is_named() -> None:
    plan = plan_of(ROOT / "examples/eks-p5-block.yaml")
    rows = json.loads(plan.files["stacks/network.parameters.json"])
    zones = {row["ParameterKey"]: row["ParameterValue"] for row in rows}
    assert zones["Zone1"] == "use2-az3"
    assert zones["Zone2"] in ("use2-az1", "use2-az2")
    assert set(cluster(plan)["vpc"]["subnets"]["private"]) == {"private-1", "private-2"}


def test_a_queue_of_kueue_holds_what_its_nodes_have() -> None:
    made = objects(plan_of(ROOT / "examples/eks-p5-block.yaml"))
    queue = next(item for item in made if item["kind"] == "ClusterQueue")
    (group,) = queue["spec"]["resourceGroups"]
    amounts = {row["name"]: row["nominalQuota"] for row in group["flavors"][0]["resources"]}
    assert (amounts["nvidia.com/gpu"], amounts["vpc.amazonaws.com/efa"]) == (32, 128)
    flavor = next(item for item in made if item["kind"] == "ResourceFlavor")
    assert flavor["spec"]["nodeLabels"] == {QUEUE_LABEL: "train"}


def test_charts_follow_what_the_spec_uses() -> None:
    def names(example: str) -> list[str]:
        return [chart["name"] for chart in json.loads(plan_of(ROOT / f"examples/{example}.yaml").files["charts.json"])]

    assert names("eks-p5-block") == ["nvidia-device-plugin", "aws-efa-k8s-device-plugin", "kueue"]
    assert names("eks-trn1") == ["aws-efa-k8s-device-plugin", "kueue"]


def test_every_kind_of_job_has_what_it_runs_on(tmp_path: Path) -> None:
    """A TrainJob its runtime, one JobSet controller, and Kueue started after the kinds that it looks for."""
    text = (ROOT / "examples/eks-g5.yaml").read_text()
    spec = yaml.safe_load(text)
    job = spec["jobs"][0]
    spec["jobs"] = [{**job, "name": f"job-{kind}", "kind": kind} for kind in ("trainjob", "jobset", "rayjob")]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    plan = make_plan(load(tmp_path / "spec.yaml"))
    runs = [yaml.safe_load(plan.files[name]) for name in plan.files if name.startswith("jobs/")]
    [trainjob] = [run for run in runs if run["kind"] == "TrainJob"]
    [runtime] = yaml.safe_load_all(plan.files["kubernetes/runtimes.yaml"])
    assert TrainerV1alpha1ClusterTrainingRuntime.model_validate(runtime).to_dict() == runtime, "its CRD knows every key"
    assert runtime["metadata"]["name"] == trainjob["spec"]["runtimeRef"]["name"]
    charts = {chart["name"]: chart["values"] for chart in json.loads(plan.files["charts.json"])}
    assert charts["kubeflow-trainer"] == {"jobset": {"install": False}}
    assert {"jobset", "kubeflow-trainer", "kuberay-operator"} <= set(list(charts)[: list(charts).index("kueue")])


def test_mpijobs_belong_to_one_operator() -> None:
    """The training operator has an MPIJob of its own, older one: its CRD is left out, and it does not look for it."""
    plan = plan_of(ROOT / "examples/eks-g5.yaml")
    made = yaml.safe_load(plan.files["operators/training-operator/kustomization.yaml"])
    crd, operator = (yaml.safe_load(row["patch"]) for row in made["patches"])
    assert (crd["$patch"], crd["metadata"]["name"]) == ("delete", "mpijobs.kubeflow.org")
    assert operator[0]["value"] == ["--enable-scheme=pytorchjob"]
    assert made["resources"][0].endswith("?ref=v1.9.4")
    assert "kubectl apply --server-side -k operators/training-operator\n" in plan.files["deploy.sh"]
    hyperpod = plan_of(ROOT / "examples/hyperpod-eks-p5.yaml").files
    assert not [name for name in hyperpod if name.startswith("operators/")], "its own chart does it"


def broken(tmp_path: Path, **changes: str) -> str:
    lines = {
        "name": "c", "platform": "eks", "region": "us-east-2",
        "queues": "[{name: q, instance: p5.48xlarge, count: 2}]", **changes,
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    with pytest.raises(CheckFailed) as caught:
        make_plan(load(tmp_path / "spec.yaml"))
    return " ".join(finding.message for finding in caught.value.result.findings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zone": "us-east-2c"}, "the control plane of EKS stands in two"),
        ({"queues": "[{name: system, instance: p5.48xlarge, count: 2}]"}, "node group `system` of its own"),
        ({"queues": "[{name: q, instance: p6-b300.48xlarge, count: 2}]"}, "the first of p6-b300.48xlarge has none"),
        ({"network": "{vpc: vpc-1, public_subnet: subnet-1, private_subnet: subnet-2}"}, "subnets in two zones"),
        ({"storage": "[{mount: /fsx, lustre: {id: fs-0123456789abcdef0}}]"}, "claim that the plan does not make"),
        ({"software": "{os: ubuntu2204}"}, "Amazon Linux 2023"),
    ],
)  # fmt: skip
def test_what_eks_cannot_do_is_found_before_anything_is_written(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    assert words in broken(tmp_path, **changes)


def test_hyperpod_gets_no_newer_kubernetes_than_it_takes() -> None:
    """SageMaker would refuse the cluster, twenty minutes after EKS made it."""
    setting = Setting(resolve(load(ROOT / "examples/hyperpod-eks-p5.yaml").spec)[0])
    assert cluster(plan_of(ROOT / "examples/hyperpod-eks-p5.yaml"))["metadata"]["version"] == "1.34"
    control = own_stacks(setting, wire(setting, bucket=True, cluster_owns_lustre=False))[0]
    assert control.parameters["Version"] == "1.34"


def test_a_monitored_cluster_with_gpus_gets_nvidias_exporter_on_those_nodes(tmp_path: Path) -> None:
    text = (ROOT / "examples/eks-g5.yaml").read_text()
    (tmp_path / "spec.yaml").write_text(text + "\nmonitoring: true\n")
    charts = json.loads(make_plan(load(tmp_path / "spec.yaml")).files["charts.json"])
    names = [chart["name"] for chart in charts]
    assert names.index("kube-prometheus-stack") < names.index("dcgm-exporter"), "which brings the kind ServiceMonitor"
    [exporter] = [chart for chart in charts if chart["name"] == "dcgm-exporter"]
    assert exporter["values"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert exporter["values"]["serviceMonitor"]["enabled"] is True
