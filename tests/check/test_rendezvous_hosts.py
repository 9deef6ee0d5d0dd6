"""K8S004: names of pods and Services that the ranks cannot resolve (Kubernetes: DNS for Services and Pods)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SERVICE = """apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: bio}}
spec: {{{address}, selector: {{{selector}}}}}
---
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: fold, namespace: bio}}
spec:
  completions: 4
  parallelism: {pods}
  completionMode: Indexed
  template:
    metadata: {{labels: {{app: fold}}}}
    spec:
      {subdomain}
      restartPolicy: Never
      containers:
      - name: fold
        image: a/b:1
        command: [bash, -c, "torchrun --nnodes=4 --node-rank=$JOB_COMPLETION_INDEX --master-addr={host} t.py"]
"""
HEADLESS = "clusterIP: None"
ADDRESS = "ports: [{port: 29500}]"
FULL = "fold-0.fold.bio.svc.cluster.local"


def service(name: str = "fold", selector: str = "app: fold", address: str = HEADLESS) -> str:
    return SERVICE.format(name=name, selector=selector, address=address)


def job(host: str = FULL, subdomain: str = "subdomain: fold", pods: int = 4) -> str:
    return JOB.format(host=host, subdomain=subdomain, pods=pods)


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (service("fold-train") + job(), ["warning K8S004 16"]),
        (service("fold-train", "job-name: fold") + job(), ["warning K8S004 16"]),
        (service() + job("fold-0.folding"), ["error K8S004 21"]),
        (service("ranks") + job("fold-0.fold", "subdomain: ranks"), ["error K8S004 21"]),
        (service() + job(subdomain="schedulerName: a"), ["error K8S004 21"]),
        (service(address=ADDRESS) + job(), ["error K8S004 21"]),
        (service(selector="app: folding") + job(), ["error K8S004 21"]),
        (service(selector="job-name: folding") + job(), ["error K8S004 21"]),
        (service("head", "app: head") + job("head.bio.svc"), ["warning K8S004 21"]),
    ],
)
def test_names_that_lead_to_no_pod(run: Run, text: str, findings: list[str]) -> None:
    assert shown(run("a.yaml", text, "K8S004")) == findings


@pytest.mark.parametrize(
    "text",
    [
        service() + job(),
        service() + job("fold-0.fold"),
        service(selector="job-name: fold") + job(),
        service(selector="batch.kubernetes.io/job-name: fold") + job(),
        service(selector="app: fold, batch.kubernetes.io/job-completion-index: '0'") + job("fold.bio.svc"),
        job(),  # the Service is in the cluster
        service("other", "app: other") + job(),
        service(address=ADDRESS) + job("fold", "schedulerName: a"),
        service() + job("$MASTER"),
        service() + job("fold-0.$SUB"),
        service() + job("${JOB}-0.fold"),
        service() + job("fold-0"),  # it may be the name of a Service in the cluster
        service("ranks") + job("fold-0", "subdomain: ranks", pods=1),
        service("ranks") + job("10.0.0.1"),
        service("ranks") + job("localhost"),
        service("ranks") + job("head.example.com"),
    ],
)
def test_names_that_are_resolved_or_may_be(run: Run, text: str) -> None:
    assert not loud(run("a.yaml", text, "K8S004"))


def test_the_fix_leads_to_the_service_that_is_there(run: Run) -> None:
    [one] = run("a.yaml", service("ranks") + job("fold-0.ranks", "subdomain: fold"), "K8S004")
    assert one.fix == "write subdomain: ranks, the name of the headless Service"
    [other] = run("a.yaml", service() + job("fold-0.ranks", "subdomain: fold"), "K8S004")
    assert other.fix == "write fold-0.fold"


def test_a_service_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(service("fold-train") + job())
    assert len(rows(tmp_path, "--select", "K8S004")) == 1
    (tmp_path / "service.yaml").write_text(service())
    assert not rows(tmp_path, "--select", "K8S004")
    (tmp_path / "service.yaml").unlink()
    (tmp_path / "kustomization.yaml").write_text("resources: [job.yaml]\ncommonLabels: {a: b}\n")
    assert not rows(tmp_path, "--select", "K8S004")


SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: mae}}
spec:
  {network}
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 4
        completions: 4
        template:
          spec:
            restartPolicy: Never
            containers:
            - {{name: a, image: a/b:1, command: [torchrun], env: [{{name: MASTER_ADDR, value: {host}}}]}}
"""


@pytest.mark.parametrize(
    ("host", "network", "count"),
    [
        ("mae-worker-0-0.mae", "", 1),
        ("mae-workers-0-0.mae-workers", "", 1),
        ("mae-workers-0-0.mae", "network: {subdomain: ranks}", 1),
        ("workers-0-0.mae", "", 1),
        ("mae-workers-0-4.mae", "", 1),
        ("mae-workers-1-0.mae", "", 1),
        ("mae-workers-0-3.mae", "", 0),
        ("head.mae", "", 0),  # of a pod with a hostname
        ("workers-0-0.other", "", 0),
        ("other-workers-0-0.ranks", "network: {subdomain: ranks}", 0),
        ("mae-workers-0-0", "", 0),
        ("mae-workers-0-0.mae", "", 0),
        ("mae-workers-0-0.mae.default.svc.cluster.local", "", 0),
        ("mae-workers-0-0.ranks", "network: {subdomain: ranks}", 0),
        ("mae-workers-0-0.mae", "network: {enableDNSHostnames: false}", 0),
        ("other-workers-0-0.other", "", 0),
    ],
)
def test_pods_of_a_job_set(run: Run, host: str, network: str, count: int) -> None:
    assert len(loud(run("a.yaml", SET.format(host=host, network=network or "suspend: false"), "K8S004"))) == count
