"""What a platform cannot do is a finding at its line, never dropped from the plan (issue 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check

LUSTRE = "storage: [{mount: /fsx, lustre: {}}]"
SLURM_JOB = "jobs: [{name: pretrain, recipe: llama3-8b}]"


def findings(folder: Path, platform: str, queue: str, *lines: str, name: str = "llama") -> list[tuple[str, str, int]]:
    """Code, level and line of every finding of errors and warnings in a spec of one queue."""
    spec = folder / "trainwright.yaml"
    head = [f"name: {name}", f"platform: {platform}", "region: us-east-2", f"queues: [{{{queue}}}]"]
    spec.write_text("\n".join([*head, *lines]) + "\n")
    return [(f.code, f.level, f.span.line) for f in check([str(spec)]).findings if f.level != "info"]


P5 = "name: train, instance: p5.48xlarge, count: 2"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((SLURM_JOB,), [("SPC004", "error", 5)]),
        ((SLURM_JOB, "runs: /shared/runs"), [("SPC004", "error", 5)]),  # the runtime would still be under /home
        ((SLURM_JOB, "runs: /shared/runs", "software: {runtime: /shared/venv}"), []),
        ((SLURM_JOB, LUSTRE), []),
    ],
)
def test_jobs_of_hyperpod_need_shared_storage(
    tmp_path: Path, lines: tuple[str, ...], expected: list[tuple[str, str, int]]
) -> None:
    """/home is local to each node there; ParallelCluster's head node shares it."""
    assert findings(tmp_path, "hyperpod", P5, *lines) == expected
    assert findings(tmp_path, "parallelcluster", P5, SLURM_JOB) == []


@pytest.mark.parametrize("platform", ["eks", "hyperpod-eks"])
def test_names_are_ones_that_kubernetes_takes(tmp_path: Path, platform: str) -> None:
    """The plan names volumes, queues and labels after them."""
    place = "kubernetes: {namespace: hyperpod-ns-a}"
    train, upper = P5, P5.replace("train", "Train")
    assert findings(tmp_path, platform, train, LUSTRE, place, name="team-a") == []
    assert findings(tmp_path, platform, train, LUSTRE, place, name="Team-A") == [("CFG002", "error", 1)]
    assert findings(tmp_path, platform, train, LUSTRE, place, name="a" * 64) == [("CFG002", "error", 1)]
    assert findings(tmp_path, platform, upper, LUSTRE, place) == [("CFG003", "error", 4)]
    wrong = place.replace("ns-a", "ns_a")
    assert findings(tmp_path, platform, train, LUSTRE, wrong) == [("SPC010", "error", 6)]


def test_trainium_on_batch_needs_an_image_with_its_driver(tmp_path: Path) -> None:
    queue = "name: train, instance: trn1.32xlarge, count: 2"
    assert findings(tmp_path, "batch", queue) == [("SPC008", "error", 4)]
    assert findings(tmp_path, "batch", queue, "software: {image: ami-0123456789abcdef0}") == []
    assert findings(tmp_path, "batch", P5) == []


def test_a_node_group_of_eks_does_not_grow(tmp_path: Path) -> None:
    """Only Karpenter starts nodes for waiting jobs; Kueue's quota is `max` in both cases."""
    queue = "name: train, instance: p5.48xlarge, count: "
    assert findings(tmp_path, "eks", f"{queue}{{min: 1, max: 4}}") == [("SPC006", "warning", 4)]
    managed = f"{queue}{{min: 0, max: 4}}, provisioner: managed"
    assert findings(tmp_path, "eks", managed) == [("SPC006", "warning", 4)]
    assert findings(tmp_path, "eks", f"{queue}{{min: 0, max: 4}}") == []
    assert findings(tmp_path, "eks", f"{queue}4") == []


def test_hyperpod_starts_jobs_again_in_its_namespaces(tmp_path: Path) -> None:
    job = "{name: a, recipe: llama3-8b, nodes: 2, container: 'registry.example.com/train:1'}"
    lines = (LUSTRE, f"jobs: [{job}]", "kubernetes: {namespace: NAMESPACE}")

    def named(namespace: str, *more: str) -> list[tuple[str, str, int]]:
        text = [line.replace("NAMESPACE", namespace) for line in (*lines, *more)]
        return [one for one in findings(tmp_path, "hyperpod-eks", P5, *text) if one[0].startswith("HYP")]

    assert named("kubeflow") == named("hyperpod-ns-a") == []
    assert named("team-a") == [("HYP006", "warning", 7)]
    assert named("kubeflow, kind: jobset") == [("HYP006", "warning", 6)]


@pytest.mark.parametrize("platform", ["eks", "hyperpod-eks", "batch", "hyperpod", "parallelcluster"])
def test_lustre_over_efa_where_nodes_set_it_up(tmp_path: Path, platform: str) -> None:
    storage = "storage: [{mount: /fsx, lustre: {capacity: 38.4TiB, throughput: 1000, efa: true}}]"
    place = "kubernetes: {namespace: kubeflow}"
    expected = [] if platform in ("hyperpod", "parallelcluster") else [("SPC001", "error", 5)]
    assert findings(tmp_path, platform, P5, storage, place) == expected


def test_groups_of_hyperpod_files_that_may_be_meant(tmp_path: Path) -> None:
    """What a policy elsewhere may allow is a note; nodes of a plan that are to be spot too are a warning."""
    group = (
        '{"InstanceGroupName": "train", "InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "ExecutionRole": '
        '"arn:aws:iam::111122223333:role/r",\n"LifeCycleConfig": {"SourceS3Uri": "s3://ours/x/", "OnCreate": "a.sh"},\n'
        '"TrainingPlanArn": "arn:aws:sagemaker:us-east-2:111122223333:training-plan/p",\n'
        '"CapacityRequirements": {"Spot": {}}}'
    )
    file = tmp_path / "cluster-config.json"
    file.write_text(f'{{"ClusterName": "c", "InstanceGroups": [{group}]}}')
    reported = [(f.code, f.level, f.span.line) for f in check([str(file)]).findings if f.code.startswith("HYP")]
    assert reported == [("HYP001", "info", 2), ("HYP003", "warning", 4)]
