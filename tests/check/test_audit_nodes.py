"""Services, node pools and tolerations near the triggers of K8S003, K8S004 and K8S005."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      subdomain: master
      containers:
      - name: a
        image: b:1
        env: [{name: MASTER_ADDR, value: HOST}, {name: MASTER_PORT, value: "29500"}]
        command: [torchrun, OPTION, train.py]
"""
SERVICE = """apiVersion: v1
kind: Service
metadata: {name: master, namespace: PLACE}
spec: {SPEC}
"""


@pytest.mark.parametrize(
    ("host", "option", "place", "said"),
    [
        ("master", "--nnodes=2", "ml", 1),
        ("master", "--nnodes=2", "web", 0),  # of another namespace
        ("master.web", "--nnodes=2", "web", 1),
        ("master.ml.svc.cluster.local", "--nnodes=2", "web", 0),
        ("master", "--standalone", "ml", 0),
        ("train-0.master", "--nnodes=2", "ml", 0),
    ],
)
def test_the_service_is_the_one_that_the_host_names(
    run: Run, tmp_path: Path, host: str, option: str, place: str, said: int
) -> None:
    web = SERVICE.replace("PLACE", place).replace("SPEC", "selector: {app: web}, ports: [{port: 80}]")
    (tmp_path / "web.yaml").write_text(web)
    text = JOB.replace("HOST", host).replace("OPTION", option)
    findings = run("job.yaml", text, "K8S004")
    assert len([f for f in findings if "forwards" in f.message]) == said
    (tmp_path / "z.yaml").write_text(SERVICE.replace("PLACE", place).replace("SPEC", "clusterIP: None"))
    assert run("job.yaml", text, "K8S004") == []  # another example of the directory has one that fits


TOLERATES = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists}
  - {key: sagemaker.amazonaws.com/node-health-status, TAINT, effect: NoSchedule}
  containers:
  - {name: a, image: "b:1", resources: {limits: {LIMIT: 1}}}
"""


@pytest.mark.parametrize(
    ("taint", "limit", "said"),
    [
        ("operator: Exists", "nvidia.com/gpu", 1),
        ("operator: Equal, value: Unschedulable", "nvidia.com/gpu", 1),
        ("operator: Equal, value: Schedulable", "nvidia.com/gpu", 0),
        ("operator: Exists", "cpu", 0),  # an exporter of metrics, which watches broken nodes too
    ],
)
def test_who_may_tolerate_broken_nodes(run: Run, taint: str, limit: str, said: int) -> None:
    assert len(run("a.yaml", TOLERATES.replace("TAINT", taint).replace("LIMIT", limit), "K8S005")) == said


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  disruption: {consolidationPolicy: WhenEmpty}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [TYPES]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [CAPACITY]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec: {role: nodes, amiSelectorTerms: [{alias: al2023@v20250403}]}
"""


@pytest.mark.parametrize(("capacity", "level"), [("reserved", "warning"), ("reserved, on-demand, spot", "info")])
def test_a_pool_with_other_capacity_still_starts_nodes(run: Run, capacity: str, level: str) -> None:
    text = POOL.replace("TYPES", "p5.48xlarge").replace("CAPACITY", capacity)
    assert shown(run("a.yaml", text, "K8S003")) == [f"{level} K8S003 11"]


def test_the_sizes_of_a_family_are_named(run: Run) -> None:
    [finding] = run("a.yaml", POOL.replace("TYPES", "p5.24xlarge").replace("CAPACITY", "spot"), "K8S003")
    assert finding.fix == "p5 comes as 48xlarge, 4xlarge"
