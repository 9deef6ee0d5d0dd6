"""Requirements of nodes that exclude each other in two entries for one key: no node is started, no pod is placed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
Pair = tuple[str, str]

NODE_POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 10m}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}
      requirements:
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: a, image: a:1, resources: {limits: {nvidia.com/gpu: 8}}}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
"""
CAPACITY, CPU = "karpenter.sh/capacity-type", "karpenter.k8s.aws/instance-cpu"


def entry(key: str, written: str) -> str:
    operator, _, values = written.partition(" ")
    listed = f", values: [{', '.join(values.split())}]" if values else ""
    return f"{{key: {key}, operator: {operator}{listed}}}"


def pool(key: str, *entries: str) -> str:
    return NODE_POOL + "".join(f"        - {entry(key, one)}\n" for one in entries)


TORN = [
    (CAPACITY, "In on-demand", "In spot"),
    (CAPACITY, "In on-demand", "NotIn on-demand"),
    (CAPACITY, "NotIn on-demand spot", "In spot on-demand"),
    (CAPACITY, "In on-demand", "DoesNotExist"),
    (CPU, 'Gt "95"', 'Lt "96"'),
    (CPU, 'Lt "8"', 'Gt "96"'),
    (CPU, 'In "8" "16"', 'Gt "16"'),
    ("topology.kubernetes.io/zone", "In us-east-1a", "In us-east-1b"),
]
RIGHT = [
    (CAPACITY, "In on-demand spot", "NotIn spot"),
    (CAPACITY, "In on-demand", "Exists"),
    (CAPACITY, "NotIn spot", "NotIn on-demand"),
    (CAPACITY, "In on-demand", "In on-demand reserved"),
    (CPU, 'Gt "94"', 'Lt "96"'),
    (CPU, 'In "8" "16"', 'Gt "8"'),
    (CPU, 'Gt "8"', "In ${CPUS}"),
    ("example.com/team", "In a", "In b"),  # a label of one's own: nodes go without it
    ("karpenter.k8s.aws/instance-gpu-count", 'Gt "7"', 'Lt "8"'),  # types without GPUs have no such label
]


@pytest.mark.parametrize(("key", "first", "second"), TORN)
def test_a_pool_whose_requirements_exclude_each_other(key: str, first: str, second: str, run: Run) -> None:
    assert loud(run("pool.yaml", pool(key, first, second), "K8S003")) == ["error K8S003 11"]


@pytest.mark.parametrize(("key", "first", "second"), RIGHT)
def test_a_pool_whose_requirements_go_together(key: str, first: str, second: str, run: Run) -> None:
    assert loud(run("pool.yaml", pool(key, first, second), "K8S003")) == []


def pod(*terms: Pair, selector: str = "", key: str = "a.example.com/b") -> str:
    text = POD + "".join(
        f"          - matchExpressions: [{', '.join(entry(key, one) for one in term)}]\n" for term in terms
    )
    return text + (f"  nodeSelector: {selector}\n" if selector else "")


def test_a_pod_whose_every_term_is_torn(run: Run) -> None:
    torn, right = ("In a", "NotIn a"), ("In a", "Exists")
    assert loud(run("pod.yaml", pod(torn), "K8S005")) == ["error K8S005 10"]
    assert loud(run("pod.yaml", pod(torn, ("Exists", "DoesNotExist")), "K8S005")) == ["error K8S005 10"]
    assert loud(run("pod.yaml", pod(torn, right), "K8S005")) == []  # one of several terms is enough
    assert loud(run("pod.yaml", pod(right), "K8S005")) == []


def test_a_node_selector_beside_the_affinity(run: Run) -> None:
    assert loud(run("pod.yaml", pod(("In a", "Exists"), selector="{a.example.com/b: c}"), "K8S005")) == [
        "error K8S005 10"
    ]
    assert loud(run("pod.yaml", pod(("In a c", "Exists"), selector="{a.example.com/b: c}"), "K8S005")) == []
    assert loud(run("pod.yaml", pod(("In a", "Exists"), selector="{a.example.com/b: $NAME}"), "K8S005")) == []


def test_a_queue_whose_namespaces_exclude_each_other(run: Run) -> None:
    queue = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\nspec:\n  namespaceSelector:\n"
    torn = queue + "    matchLabels: {team: a}\n    matchExpressions:\n      - {key: team, operator: In, values: [b]}\n"
    assert [f.span.line for f in run("queue.yaml", torn, "K8S002")] == [8]
    assert run("queue.yaml", torn.replace("[b]", "[a, b]"), "K8S002") == []
