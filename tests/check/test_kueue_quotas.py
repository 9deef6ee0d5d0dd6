"""Jobs that do not fit the Kueue queue that they name, in one file and in two of a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import rows

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

QUEUES = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  COHORT
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: h100
      resources:
      - {name: cpu, nominalQuota: 400}
      - {name: memory, nominalQuota: 4Ti}
      - {name: nvidia.com/gpu, nominalQuota: QUOTA}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: research, namespace: lab}
spec: {clusterQueue: gpus}
"""
POD = """{spec: {restartPolicy: Never, containers: [{name: pytorch, image: a/b:1, command: [python, t.py],
  resources: {requests: {cpu: 90, memory: 900Gi}, limits: {nvidia.com/gpu: 8}}}]}}"""
HEAD = "metadata: {name: a, namespace: PLACE, labels: {kueue.x-k8s.io/queue-name: NAME}}\n"
JOB = "apiVersion: batch/v1\nkind: Job\n" + HEAD + f"spec:\n  parallelism: 4\n  completions: 4\n  template: {POD}\n"
JOBSET = (
    "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + HEAD + "spec:\n  replicatedJobs:\n  - name: w\n"
    f"    replicas: 2\n    template: {{spec: {{parallelism: 2, completions: 2, template: {POD}}}}}\n"
)
PYTORCH = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n" + HEAD + "spec:\n  pytorchReplicaSpecs:\n"
    f"    Master: {{replicas: 1, template: {POD}}}\n    Worker: {{replicas: 3, template: {POD}}}\n"
)
RAY = (
    "apiVersion: ray.io/v1\nkind: RayCluster\n"
    + HEAD
    + "spec:\n  headGroupSpec: {rayStartParams: {}, template: {spec: "
    "{containers: [{name: h, image: a/b:1}]}}}\n  workerGroupSpecs:\n"
    f"  - {{groupName: g, replicas: 4, minReplicas: 4, maxReplicas: 4, rayStartParams: {{}}, template: {POD}}}\n"
)


def found(
    folder: Path, job: str, quota: str = "16", cohort: str = "", name: str = "research", place: str = "lab"
) -> list[str]:
    (folder / "queue.yaml").write_text(QUEUES.replace("QUOTA", quota).replace("COHORT", cohort))
    (folder / "job.yaml").write_text(job.replace("NAME", name).replace("PLACE", place))
    return [row["level"] for row in rows(folder, "--select", "K8S002") if row["level"] != "info"]


@pytest.mark.parametrize("job", [JOB, JOBSET, PYTORCH, RAY])
def test_a_job_above_the_quota_of_another_file(tmp_path: Path, job: str) -> None:
    assert found(tmp_path, job) == ["error"]
    assert found(tmp_path, job, quota="32") == []
    assert found(tmp_path, job, cohort="cohort: all") == []
    assert found(tmp_path, job, cohort="cohortName: all") == []
    assert found(tmp_path, job, quota="'{{ quota }}'") == []
    assert found(tmp_path, job, place="other") == ["warning"]  # of its namespace, and not of the quota


def test_other_resources_than_gpus(tmp_path: Path) -> None:
    assert found(tmp_path, JOB.replace("cpu: 90", "cpu: 120"), quota="32") == ["error"]
    assert found(tmp_path, JOB.replace("900Gi", "1200Gi"), quota="32") == ["error"]
    assert found(tmp_path, JOB.replace("cpu: 90", "cpu: 100"), quota="32") == []


def test_one_of_two_queues_of_a_name_is_enough(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text(QUEUES.replace("QUOTA", "64").replace("COHORT", ""))
    assert found(tmp_path, JOB) == []


def test_a_misspelt_queue(tmp_path: Path) -> None:
    assert found(tmp_path, JOB, quota="32", name="reserach") == ["warning"]
    assert found(tmp_path, JOB, quota="32", name="research-2") == []
    assert found(tmp_path, JOB, quota="32", name="prod") == []  # it may be in the cluster
    assert found(tmp_path, JOB, quota="32", name="reserach", place="other") == []


@pytest.mark.parametrize(
    ("covered", "levels"),
    [
        ("cpu, memory", ["warning"]),
        ("nvidia.com/gpu", []),  # Kueue may be told to leave out the others
        ("cpu, '${GPU}'", []),
    ],
)
def test_gpus_that_no_group_covers(run: Run, covered: str, levels: list[str]) -> None:
    resources = "".join(f"{{name: {one}, nominalQuota: 9000}}, " for one in covered.split(", "))
    queues = (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: c}\nspec:\n  resourceGroups:\n"
        f"  - {{coveredResources: [{covered}], flavors: [{{name: f, resources: [{resources}]}}]}}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: q, namespace: lab}\n"
        "spec: {clusterQueue: c}\n---\n"
    )
    text = queues.replace("9000", "9000Gi") + JOB.replace("NAME", "q").replace("PLACE", "lab")
    assert [f.level for f in run("a.yaml", text, "K8S002") if f.level != "info"] == levels


@pytest.mark.parametrize(
    ("selector", "second", "levels"),
    [
        ("p4d.24xlarge", "", ["warning"]),
        ("p5.48xlarge", "", []),
        ("p4d.24xlarge", "p4d.24xlarge", []),
        ("p4d.24xlarge", "p5e.48xlarge", ["warning"]),
        ("p4d.24xlarge", "null", []),  # a flavor without labels takes any node
    ],
)
def test_nodes_that_no_flavor_has(run: Run, selector: str, second: str, levels: list[str]) -> None:
    flavor = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: NAME}\n"
    label = "spec: {nodeLabels: {node.kubernetes.io/instance-type: TYPE}}\n---\n"
    text = (flavor + label).replace("NAME", "a").replace("TYPE", "p5.48xlarge")
    if second:
        text += (flavor + (label if second != "null" else "---\n")).replace("NAME", "b").replace("TYPE", second)
    resources = "resources: [{name: nvidia.com/gpu, nominalQuota: 64}]"
    more = f", {{name: b, {resources}}}" if second else ""
    text += (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: c}\nspec:\n  resourceGroups:\n"
        f"  - {{coveredResources: [nvidia.com/gpu], flavors: [{{name: a, {resources}}}{more}]}}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: q}\nspec: {clusterQueue: c}\n---\n"
    )
    job = JOB.replace("NAME", "q").replace(", namespace: PLACE", "")
    text += job.replace(
        "spec: {restart", f"spec: {{nodeSelector: {{node.kubernetes.io/instance-type: {selector}}}, restart"
    )
    assert [f.level for f in run("a.yaml", text, "K8S002") if f.level != "info"] == levels
    of_processors = text.replace("coveredResources: [nvidia.com/gpu]", "coveredResources: [ephemeral-storage]")
    assert not [f for f in run("a.yaml", of_processors, "K8S002") if "flavors of their queue" in f.message]
