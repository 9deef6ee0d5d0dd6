"""K8S005: pods that name a Karpenter node pool whose nodes they cannot use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud

from trainwright.check.engine import check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p5}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: p5}
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]
      taints: [{key: dedicated, value: training, effect: NoSchedule}, {key: nvidia.com/gpu, effect: NoSchedule}]
  limits: {nvidia.com/gpu: 32}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {karpenter.sh/nodepool: p5}
      tolerations: [{key: dedicated, operator: Exists}]
      containers:
      - {name: a, image: a/b:1, command: [python, t.py], resources: {limits: {nvidia.com/gpu: 8}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("[{key: dedicated, operator: Exists}]", "[]", "dedicated=training:NoSchedule"),
        ("{key: dedicated, operator: Exists}", "{key: dedicated, value: other}", "taint"),
        ("{key: dedicated, operator: Exists}", "{key: dedicated, operator: Exists, effect: NoExecute}", "taint"),
        ("{karpenter.sh/nodepool: p5}", "{karpenter.sh/nodepool: p5, node.kubernetes.io/instance-type: p4d.24xlarge}",
         "p4d.24xlarge"),
        ("nvidia.com/gpu: 8", "nvidia.com/gpu: 16", "16 GPUs"),
        ("parallelism: 4\n  completions: 4", "parallelism: 8\n  completions: 8", "64 GPUs at once"),
    ],
)  # fmt: skip
def test_pods_that_the_pool_does_not_take(run: Run, old: str, new: str, word: str) -> None:
    findings = run("a.yaml", f"{POOL}---\n{JOB.replace(old, new)}", "K8S005")
    assert [f.level for f in findings][:1] == ["warning"]
    assert word in findings[0].message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{key: dedicated, operator: Exists}", "{key: dedicated, value: training}"),
        ("{key: dedicated, operator: Exists}", "{operator: Exists}"),
        ("{key: dedicated, operator: Exists}", "{key: dedicated, operator: Equal, value: '${TAINT}'}"),
        ("nodepool: p5", "nodepool: other"),
        ("metadata: {name: train}", "metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: q}}"),
        ("[{key: dedicated, operator: Exists}]", "$TOLERATIONS"),
        ("{karpenter.sh/nodepool: p5}", "{karpenter.sh/nodepool: p5, node.kubernetes.io/instance-type: p5.48xlarge}"),
    ],
)
def test_pods_that_the_pool_takes(run: Run, old: str, new: str) -> None:
    assert not loud(run("a.yaml", f"{POOL}---\n{JOB.replace(old, new)}", "K8S005"))


def test_a_pool_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "job.yaml").write_text(JOB.replace("[{key: dedicated, operator: Exists}]", "[]"))
    findings = [f for f in check([str(tmp_path)]).findings if f.code == "K8S005"]
    assert [(f.level, Path(f.file).name) for f in findings] == [("warning", "job.yaml")]
