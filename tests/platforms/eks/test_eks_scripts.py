"""deploy.sh and undeploy.sh of an EKS plan, run for real against stand-ins of aws, eksctl, kubectl and helm that keep a
small account in a folder. Nothing else has seen them: no cluster was made on AWS."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from trainwright.platforms.plan.tree import earlier_files, make_plan, write
from trainwright.spec.load import load

ROOT = Path(__file__).parents[3]
AWS = r"""#!/bin/bash
echo "aws $*" >> "$ACCOUNT/calls"
shift 4
case "$1 $2" in
  "sts get-caller-identity") echo 111122223333 ;;
  "cloudformation deploy") touch "$ACCOUNT/stacks/$4" ;;
  "cloudformation describe-stacks")
    case $* in
      *NodeRoleArn*) echo arn:aws:iam::111122223333:role/nodes ;;
      *-karpenter*) printf 'NodeRoleArn\tarn:aws:iam::111122223333:role/nodes\nControllerRoleArn\tarn:c\n'
        printf 'NodeProfileName\tprofile\nPlacementGroup1\tgroup\n' ;;
      *-network*) printf 'Vpc\tvpc-1\nPrivateSubnet\tsubnet-2\nPrivateSubnet2\tsubnet-3\nSecurityGroup\tsg-1\n' ;;
      *-lustre*) printf 'FileSystemId\tfs-1\nDnsName\tfs-1.fsx\nMountName\tabcd\n' ;;
    esac ;;
  "cloudformation list-stacks")
    for stack in "$ACCOUNT"/stacks/*; do case $* in *"'$(basename "$stack")'"*) echo CREATE_COMPLETE ;; esac; done ;;
  "cloudformation delete-stack") rm "$ACCOUNT/stacks/$4" ;;
  "eks list-clusters")
    [ ! -e "$ACCOUNT/no-answer" ] || { echo "expired token" >&2; exit 1; }
    [ ! -e "$ACCOUNT/cluster" ] || echo eks-p5-block ;;
  "eks list-pod-identity-associations" | "eks list-access-entries") cat "$ACCOUNT/rights" 2> /dev/null || true ;;
  "ec2 describe-capacity-reservations")
    cat "$ACCOUNT/block" 2> /dev/null || printf 'scheduled\t2026-12-01T11:30:00Z\n' ;;
  "eks describe-cluster") cat "$ACCOUNT/owner" ;;
esac
"""
EKSCTL = r"""#!/bin/bash
echo "eksctl $*" >> "$ACCOUNT/calls"
case "$1 $2" in
  "create cluster") cp "$4" "$ACCOUNT/cluster"; echo eks-p5-block > "$ACCOUNT/owner" ;;
  "delete cluster")
    [ ! -e "$ACCOUNT/machines" ] || { echo "nodes of Karpenter would run on" >&2; exit 1; }
    rm "$ACCOUNT/cluster" ;;
esac
"""
KUBECTL = r"""#!/bin/bash
echo "kubectl $*" >> "$ACCOUNT/calls"
case "$1 $2" in
  "get pv") cat "$ACCOUNT/volumes" 2> /dev/null || echo '{"items": []}' ;;
  "get services") echo '{"items": []}' ;;
  "get pods") cat "$ACCOUNT/pods" 2> /dev/null || echo '{"items": []}' ;;
  "get pvc") echo '{"items": [{"metadata": {"namespace": "default", "name": "fsx"}}]}' ;;
  "get crd")
    for kind in pytorchjobs.kubeflow.org nodepools.karpenter.sh nodeclaims.karpenter.sh; do
      jq -n --arg name "$kind" '{metadata: {name: $name}}'
    done | jq -s '{items: .}' ;;
  "delete nodepools.karpenter.sh") # its claims, and their machines, go in the background
    [[ $* = *--cascade=foreground* ]] && rm -f "$ACCOUNT/machines" || true ;;
  "delete pytorchjobs.kubeflow.org") rm "$ACCOUNT/pods" ;;
  "delete pvc") # one that a pod uses stays until the pod has ended
    [ ! -e "$ACCOUNT/pods" ] || { echo "error: timed out waiting for the condition" >&2; exit 1; } ;;
  "apply --server-side") [ "$3" = -k ] || [[ $4 = http* ]] || cat "$4" >> "$ACCOUNT/objects" ;;
esac
"""
HELM = r"""#!/bin/bash
echo "helm $*" >> "$ACCOUNT/calls"
cat >> "$ACCOUNT/values"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write(make_plan(load(ROOT / "examples" / "eks-p5-block.yaml")), tmp_path / "plan", {}, None)
    (tmp_path / "account" / "stacks").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, text in {"aws": AWS, "eksctl": EKSCTL, "kubectl": KUBECTL, "helm": HELM}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "plan"


def run(plan: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    here = {
        **os.environ,
        "PATH": f"{plan.parent / 'bin'}:{os.environ['PATH']}",
        "ACCOUNT": str(plan.parent / "account"),
    }
    return subprocess.run([plan / script, *words], env=here, capture_output=True, text=True, check=False)


def calls(plan: Path) -> list[str]:
    return (plan.parent / "account" / "calls").read_text().splitlines()


pytestmark = pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")


def test_a_plan_is_deployed_in_order_with_real_ids(plan: Path) -> None:
    done = run(plan, "deploy.sh")
    assert done.returncode == 0, done.stderr
    words = [" ".join(line.split()[:3]) for line in calls(plan)]
    order = [
        words.index(word) for word in ("eksctl create cluster", "kubectl apply --server-side", "helm upgrade --install")
    ]
    assert order == sorted(order)
    cluster = (plan.parent / "account/cluster").read_text()
    assert [group["subnets"] for group in yaml.safe_load(cluster)["managedNodeGroups"]] == [["subnet-2"]] * 2
    assert set(yaml.safe_load(cluster)["vpc"]["subnets"]["private"]) == {"private-1", "private-2"}
    made = list(
        yaml.safe_load_all(
            (plan.parent / "account/objects")
            .read_text()
            .replace("apiVersion: v1\nkind: Pers", "---\napiVersion: v1\nkind: Pers")
        )
    )
    volume = next(item for item in made if item["kind"] == "PersistentVolume")
    assert volume["spec"]["csi"]["volumeAttributes"] == {"dnsname": "fs-1.fsx", "mountname": "abcd"}
    assert "p5.48xlarge" in (plan.parent / "account/values").read_text()
    scale = "eksctl scale nodegroup --region us-east-2 --cluster eks-p5-block --name train --nodes 4"
    assert f"begins at 2026-12-01T11:30:00Z. Run then: {scale}" in done.stderr
    assert scale not in calls(plan), "launches would fail"
    (plan.parent / "account/block").write_text("active\t2026-12-01T11:30:00Z\n")
    again = run(plan, "deploy.sh")
    assert scale in calls(plan)
    assert again.returncode == 0, again.stderr
    assert sum(line.startswith("eksctl create cluster") for line in calls(plan)) == 1


def test_a_cluster_that_gets_karpenter_later_gets_what_it_needs(plan: Path) -> None:
    """Add-ons, the role of its service account and the entry by which its nodes join; what is there is left alone."""
    assert run(plan, "deploy.sh").returncode == 0
    (plan.parent / "account/calls").unlink()
    later = make_plan(load(ROOT / "examples" / "eks-g5.yaml", ["name=eks-p5-block"]))
    write(later, plan, {}, earlier_files(plan))
    done = run(plan, "deploy.sh")
    assert done.returncode == 0, done.stderr
    made = [line.split()[2] for line in calls(plan) if line.startswith("eksctl create")]
    assert made == ["nodegroup", "addon", "podidentityassociation", "accessentry"]
    entry = yaml.safe_load((plan / ".deployed/eksctl/access.yaml").read_text())["accessConfig"]["accessEntries"]
    assert entry == [{"principalARN": "arn:aws:iam::111122223333:role/nodes", "type": "EC2_LINUX"}]
    (plan.parent / "account/calls").unlink()
    (plan.parent / "account/rights").write_text("there\n")
    assert run(plan, "deploy.sh").returncode == 0
    made = [line.split()[2] for line in calls(plan) if line.startswith("eksctl create")]
    assert made == ["nodegroup", "addon"], "eksctl itself leaves alone the groups and add-ons that are there"


def test_somebody_elses_cluster_is_neither_changed_nor_removed(plan: Path) -> None:
    (plan.parent / "account/cluster").touch()
    (plan.parent / "account/owner").write_text("None\n")
    for script in ("deploy.sh", "undeploy.sh"):
        done = run(plan, script)
        assert done.returncode == 1
        assert "not made by this plan" in done.stderr
    assert (plan.parent / "account/cluster").exists()


def test_an_answer_that_cannot_be_had_ends_the_removal(plan: Path) -> None:
    assert run(plan, "deploy.sh").returncode == 0
    (plan.parent / "account/no-answer").touch()
    assert run(plan, "undeploy.sh").returncode != 0
    assert (plan.parent / "account/stacks/eks-p5-block-network").exists()


def test_removal_keeps_data_unless_it_is_named(plan: Path) -> None:
    assert run(plan, "deploy.sh").returncode == 0
    held = '{"items": [{"spec": {"persistentVolumeReclaimPolicy": "Delete", "claimRef": {"name": "home"}}}]}'
    (plan.parent / "account/volumes").write_text(held)
    refused = run(plan, "undeploy.sh")
    assert refused.returncode == 1
    assert "home" in refused.stderr
    assert (plan.parent / "account/cluster").exists()
    (plan.parent / "account/volumes").unlink()
    done = run(plan, "undeploy.sh")
    assert done.returncode == 0, done.stderr
    assert not (plan.parent / "account/cluster").exists()
    assert {path.name for path in (plan.parent / "account/stacks").iterdir()} == {
        "eks-p5-block-network", "eks-p5-block-lustre-fsx",
    }  # fmt: skip
    assert run(plan, "undeploy.sh", "lustre-fsx").returncode == 0
    assert not list((plan.parent / "account/stacks").iterdir())


POD = """{"items": [
  {"metadata": {"namespace": "default", "name": "run-1-master-0",
    "labels": {"app.kubernetes.io/managed-by": "trainwright"}}, "spec": {}, "status": {"phase": "Running"}},
  {"metadata": {"namespace": "lab", "name": "old"}, "status": {"phase": "Succeeded"},
    "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "fsx"}}]}},
  {"metadata": {"namespace": "lab", "name": "notebook"}, "status": {"phase": "Pending"},
    "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "fsx"}}]}}]}"""


def test_jobs_are_named_before_anything_is_removed_and_go_first_when_asked(plan: Path) -> None:
    """A claim that a pod uses is not deleted: kubectl would wait for it."""
    assert run(plan, "deploy.sh").returncode == 0
    (plan.parent / "account/pods").write_text(POD)
    done = run(plan, "undeploy.sh")
    assert done.returncode == 1
    assert "default/run-1-master-0 (Running)\nlab/notebook (Pending)\n" in done.stderr
    assert "lab/old" not in done.stderr
    assert not any(line.startswith("kubectl delete pvc") for line in calls(plan))
    done = run(plan, "undeploy.sh", "jobs")
    assert done.returncode == 0, done.stderr
    words = [" ".join(line.split()[:3]) for line in calls(plan)]
    order = ["kubectl delete pytorchjobs.kubeflow.org", "kubectl delete pvc", "eksctl delete cluster"]
    assert [words.index(word) for word in order] == sorted(words.index(word) for word in order)
    waits = [line for line in calls(plan) if " --wait" in line and line.startswith("kubectl")]
    assert all("--timeout" in line for line in waits)


def test_nodes_of_karpenter_end_before_the_nodes_that_karpenter_runs_on(plan: Path) -> None:
    """A pool is deleted at once, its nodes are not; a kind that was never installed is no error."""
    later = make_plan(load(ROOT / "examples" / "eks-g5.yaml", ["name=eks-p5-block"]))
    write(later, plan, {}, earlier_files(plan))
    assert run(plan, "deploy.sh").returncode == 0
    (plan.parent / "account/machines").touch()
    done = run(plan, "undeploy.sh")
    assert done.returncode == 0, done.stderr
    deleted = [line.split()[2] for line in calls(plan) if line.startswith("kubectl delete") and "karpenter" in line]
    assert deleted == ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"]


def test_hyperpod_goes_where_its_eks_cluster_is_gone_already(plan: Path) -> None:
    write(make_plan(load(ROOT / "examples" / "hyperpod-eks-p5.yaml")), plan.parent / "pod", {}, None)
    for key in ("hyperpod", "role"):
        (plan.parent / "account/stacks" / f"hyperpod-eks-p5-{key}").touch()
    done = run(plan.parent / "pod", "undeploy.sh")
    assert done.returncode == 0, done.stderr
    deleted = [line.rpartition("-")[2] for line in calls(plan) if "delete-stack" in line]
    assert deleted == ["hyperpod", "role"], "its nodes use the role"


def test_what_hyperpod_lacks_is_said_before_the_cluster_is_made(plan: Path) -> None:
    write(make_plan(load(ROOT / "examples" / "hyperpod-eks-p5.yaml")), plan.parent / "pod", {}, None)
    done = run(plan.parent / "pod", "deploy.sh")  # these stacks give no role and no bucket
    assert done.returncode == 1, done.stderr
    assert ".deployed/hyperpod.yaml:" in done.stdout
    assert not any(line.startswith("eksctl") for line in calls(plan))
    assert "helm jq git; do" in (plan.parent / "pod/deploy.sh").read_text(), "its chart is in a repository"
    assert "helm jq; do" in (plan / "deploy.sh").read_text()


@pytest.mark.parametrize("example", ["eks-g5", "batch-p4d", "hyperpod-eks-p5"])
def test_every_stack_carries_the_tags_of_the_spec(example: str) -> None:
    """Also those with a blank, as one word of the shell."""
    made = make_plan(load(ROOT / "examples" / f"{example}.yaml", ["tags={team: vision, cost center: a b}"]))
    deploys = [line for line in made.files["deploy.sh"].splitlines() if "--tags" in line]
    assert deploys
    assert all("team=vision 'cost center=a b'" in line for line in deploys)
