"""K8S006: Karpenter's objects of v1 with what v1beta1 took. The schema says the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

SCHEMAS = Path(__file__).parents[1] / "judges/schemas"
POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  limits: {nvidia.com/gpu: 32}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}
"""
CLASS = """apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@v20250801}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""
OLD = [
    (POOL, "group: karpenter.k8s.aws", "apiVersion: karpenter.k8s.aws/v1beta1", "write group: karpenter.k8s.aws"),
    (POOL, "group: karpenter.azure.com, ", "", ""),
    (POOL, "group: karpenter.k8s.aws, ", "", "write group: karpenter.k8s.aws"),
    (POOL, "group: karpenter.k8s.aws, kind: EC2NodeClass, ", "", "write group: karpenter.k8s.aws, kind: EC2NodeClass"),
    (
        POOL,
        "group: karpenter.k8s.aws, kind: EC2NodeClass",
        "kind: AKSNodeClass",
        "write group: karpenter.azure.com",
    ),
    (POOL, "WhenEmpty,", "WhenUnderutilized,", "write WhenEmptyOrUnderutilized"),
    (POOL, ", consolidateAfter: 5m", "", "add consolidateAfter: 0s"),
    (POOL, "{nvidia.com/gpu: 32}", "{resources: {nvidia.com/gpu: 32}}", "write its keys directly below limits"),
    (CLASS, "  amiSelectorTerms: [{alias: al2023@v20250801}]", "  amiFamily: AL2023", "add amiSelectorTerms"),
    (CLASS, "  subnetSelectorTerms: [{tags: {a: b}}]\n", "", "add subnetSelectorTerms"),
]


@pytest.mark.parametrize(("text", "old", "new", "fix"), OLD)
def test_what_v1_does_not_take(run: Run, text: str, old: str, new: str, fix: str) -> None:
    findings = run("a.yaml", text.replace(old, new), "K8S006")
    assert [(f.level, f.fix.startswith(fix)) for f in findings] == ([("error", True)] if fix else [])
    older = text.replace(old, new).replace("/v1\n", "/v1beta1\n")
    assert run("a.yaml", older, "K8S006") == []


@pytest.mark.parametrize(("text", "old", "new", "fix"), OLD)
def test_the_schema_says_the_same(text: str, old: str, new: str, fix: str) -> None:
    validators = pytest.importorskip("jsonschema")
    kind = "karpenter.sh_v1_NodePool" if text is POOL else "karpenter.k8s.aws_v1_EC2NodeClass"
    validator = validators.Draft7Validator(json.loads((SCHEMAS / f"{kind}.json").read_text()))
    assert validator.is_valid(yaml.safe_load(text))
    assert validator.is_valid(yaml.safe_load(text.replace(old, new))) == (not fix)


def test_a_base_of_kustomize_may_be_completed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\n")
    assert run("a.yaml", POOL.replace(", consolidateAfter: 5m", ""), "K8S006") == []
