"""K8S002: pods of a Job that wait for pods which start only after them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

WAITING = """apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  completions: 4
  parallelism: {together}
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: a, image: a/b:1, command: [bash, -c, "torchrun {option} t.py --rank $JOB_COMPLETION_INDEX"]}}
"""


@pytest.mark.parametrize(
    ("together", "option", "count"),
    [
        ("2", "--nnodes=4", 1),
        ("1", "--nnodes 4", 1),
        ("4", "--nnodes=4", 0),
        ("2", "--nnodes=1", 0),  # a sweep
        ("2", "--nnodes=1:4", 0),
        ("2", "--nnodes=$N", 0),
        ("2", "--standalone", 0),
        ("0", "--nnodes=4", 0),  # started by hand
    ],
)
def test_pods_that_wait_for_later_ones(run: Run, together: str, option: str, count: int) -> None:
    assert len(loud(run("a.yaml", WAITING.format(together=together, option=option), "K8S002"))) == count
