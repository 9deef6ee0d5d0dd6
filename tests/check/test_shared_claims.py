"""K8S006: claims of EBS volumes that pods on several nodes would share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, rows, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: work, namespace: {place}}}
spec:
  accessModes: [{mode}]
  {storage}
  resources: {{requests: {{storage: 100Gi}}}}
---
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: train, namespace: lab}}
spec:
  parallelism: {pods}
  completions: {pods}
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: a, image: a/b:1, command: [python, t.py], resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}
      volumes: [{{name: work, persistentVolumeClaim: {{claimName: {name}}}}}]
"""
CLASS = """apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: fast}}
provisioner: {driver}
---
"""
GP3 = "storageClassName: gp3"
FAST = "storageClassName: fast"


def claim(mode: str = "ReadWriteOnce", storage: str = GP3, place: str = "lab") -> str:
    return CLAIM.format(mode=mode, storage=storage, place=place)


def job(pods: int = 4, gpus: int = 8, name: str = "work") -> str:
    return JOB.format(pods=pods, gpus=gpus, name=name)


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (claim() + job(), ["warning K8S006 5"]),
        (claim("ReadWriteOncePod") + job(), ["warning K8S006 5"]),
        (claim(storage="storageClassName: ebs-sc") + job(), ["warning K8S006 5"]),
        (CLASS.format(driver="ebs.csi.aws.com") + claim(storage=FAST) + job(), ["error K8S006 10"]),
        (claim() + job(gpus=1), ["info K8S006 5"]),  # they may be on one node
        (claim(storage="storageClassName: standard") + job(), ["info K8S006 5"]),
        (claim(storage="volumeMode: Filesystem") + job(), ["info K8S006 5"]),
        (claim("ReadWriteMany") + job(), ["warning K8S006 5"]),
        (CLASS.format(driver="ebs.csi.aws.com") + claim("ReadWriteMany", FAST) + job(), ["error K8S006 10"]),
    ],
)
def test_a_volume_of_one_node(run: Run, text: str, findings: list[str]) -> None:
    assert shown(run("a.yaml", text, "K8S006")) == findings


@pytest.mark.parametrize(
    "text",
    [
        claim("ReadWriteMany", "storageClassName: fsx-lustre-sc") + job(),
        claim("'ReadWriteOnce', 'ReadWriteMany'", "storageClassName: efs-sc") + job(),
        claim() + job(pods=1),
        claim() + job(name="other"),
        claim(place="other") + job(),
        CLASS.format(driver="fsx.csi.aws.com") + claim(storage=FAST) + job(),
        CLASS.format(driver="fsx.csi.aws.com") + claim("ReadWriteMany", FAST) + job(),
        claim("ReadWriteMany", f"{GP3}\n  volumeMode: Block"),
        claim("ReadWriteMany", "storageClassName: sc1") + job(),
        claim("ReadWriteMany", "storageClassName: nfs-gp3") + job(),
        claim("ReadWriteMany", "storageClassName: ''\n  volumeName: gp3-static") + job(),
        claim("ReadWriteOnce", "storageClassName: '{{ class }}'") + job(),
    ],
)
def test_claims_that_serve_their_pods(run: Run, text: str) -> None:
    assert not loud(run("a.yaml", text, "K8S006"))


def test_a_claim_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(claim())
    (tmp_path / "job.yaml").write_text(job())
    (row,) = rows(tmp_path, "--select", "K8S006")
    assert (row["level"], row["line"], Path(row["file"]).name) == ("warning", 13, "job.yaml")
