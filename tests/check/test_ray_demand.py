"""K8S002: Ray jobs that ask for more GPUs than their cluster has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
RAY = """apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: sft}}
spec:
  entrypoint: {entry}
  shutdownAfterJobFinishes: true
  {more}
  rayClusterSpec:
    {scaling}
    headGroupSpec:
      rayStartParams: {{{head}}}
      template: {{spec: {{containers: [{{name: head, image: a/b:1}}]}}}}
    workerGroupSpecs:
    - groupName: gpu
      replicas: {replicas}
      minReplicas: 1
      maxReplicas: 4
      rayStartParams: {{}}
      template: {{spec: {{containers: [{{name: w, image: a/b:1, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
"""
SCRIPT = """---
apiVersion: v1
kind: ConfigMap
metadata: {{name: code}}
data:
  train.py: |
    trainer = TorchTrainer(f, scaling_config=ScalingConfig({call}))
"""
TRAIN = "python train.py --num-workers 16 --use-gpu"


def ray(entry: str = TRAIN, replicas: object = 1, more: str = "", scaling: str = "", head: str = "") -> str:
    return RAY.format(entry=entry, replicas=replicas, more=more, scaling=scaling, head=head)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (ray(), 1),
        (ray("python train.py --num_workers=9 --use_gpu=True"), 1),
        (ray(scaling="enableInTreeAutoscaling: false"), 1),
        (ray("python train.py --num-workers 40 --use-gpu", scaling="enableInTreeAutoscaling: true"), 1),
        (ray("python train.py", more="entrypointNumGpus: 16"), 1),
        (ray("python train.py") + SCRIPT.format(call="num_workers=16, use_gpu=True"), 1),
        (ray(replicas=2), 0),
        (ray(scaling="enableInTreeAutoscaling: true"), 0),
        (ray("python train.py --num-workers 8 --use-gpu"), 0),
        (ray("python train.py --num-workers 16"), 0),  # of a data loader
        (ray("python train.py --num-workers 16 --use-gpu=false"), 0),
        (ray("python train.py --num-workers $N --use-gpu"), 0),
        (ray(replicas="'{{ n }}'"), 0),
        (ray(head="num-gpus: '8'"), 0),
        (ray("python train.py", more="entrypointNumGpus: 8"), 0),
        (ray("python train.py") + SCRIPT.format(call="num_workers=16, use_gpu=False"), 0),
        (ray("python train.py") + SCRIPT.format(call="num_workers=16, use_gpu=True, resources_per_worker=R"), 0),
        (ray("python train.py") + SCRIPT.format(call="num_workers=n, use_gpu=True"), 0),
    ],
)
def test_gpus_of_a_ray_job(run: Run, text: str, count: int) -> None:
    assert len(loud(run("a.yaml", text, "K8S002"))) == count
