"""Submitting, listing, reading and cancelling through the real Kubernetes client, against the stub API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stub_api import Api

from trainwright.errors import UserError
from trainwright.schedulers.base import JobIdentity, Launch
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.schedulers.shell import Unreachable

LAUNCH = Launch("job", ("python", "train.py"), Path("/fsx/pretrain"), nodes=2, container="example.com/train:1")
PRETRAIN = JobIdentity("pretrain")
JOBS = "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs"


def scheduler() -> KubernetesScheduler:
    return KubernetesScheduler(PodSettings(namespace="training"))


def test_a_job_is_submitted_seen_and_cancelled(api: Api) -> None:
    ours = scheduler()
    job = ours.submit(LAUNCH, ours.render(LAUNCH))
    assert job.id == "pretrain"
    assert ours.state(job).state == "pending"
    api.objects[f"{JOBS}/pretrain"]["status"] = {
        "startTime": "2026-11-15T00:00:00Z",
        "conditions": [
            {"type": "Running", "status": "False", "lastTransitionTime": "2026-11-15T00:00:01Z"},
            {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-15T00:00:02Z", "message": "pod 1 died"},
        ],
    }
    [status] = ours.jobs()
    assert (status.state, status.reason, status.over) == ("failed", "pod 1 died", True)
    ours.cancel(job)
    assert api.objects == {}


def test_logs_carry_the_pods_name_and_go_on_where_they_stopped(api: Api) -> None:
    api.pods = [
        {"metadata": {"name": f"pretrain-{role}-0"}, "spec": {"containers": []}, "status": {"phase": phase}}
        for role, phase in (("worker", "Pending"), ("master", "Running"))
    ]
    first = "2026-11-15T00:00:01.000000001Z step 1\n2026-11-15T00:00:01.000000001Z and more\n"
    api.logs["pretrain-master-0"] = first
    seen: dict[str, str] = {}
    assert list(scheduler().logs(PRETRAIN, "", seen)) == [
        ("pretrain-master-0", "step 1"),
        ("pretrain-master-0", "and more"),
    ]
    assert list(scheduler().logs(PRETRAIN, "", seen)) == []
    api.logs["pretrain-master-0"] = first + "2026-11-15T00:00:02.000000000Z step 2\n"
    assert list(scheduler().logs(PRETRAIN, "", seen)) == [("pretrain-master-0", "step 2")]
    assert "sinceSeconds=" in api.asked[-1], "a long log is not read again from its start"


def test_a_pod_that_was_deleted_since_it_was_listed_has_no_lines(api: Api) -> None:
    """A JobSet that starts again deletes its pods while their logs are followed."""
    running = {"phase": "Running"}
    api.pods = [{"metadata": {"name": f"pretrain-worker-{n}"}, "status": running} for n in (0, 1)]
    api.logs["pretrain-worker-1"] = "2026-11-15T00:00:01.000000000Z step 1\n"
    assert list(scheduler().logs(PRETRAIN, "", {})) == [("pretrain-worker-1", "step 1")]


def test_a_cluster_that_does_not_answer_is_told(api: Api) -> None:
    api.shutdown()
    api.server_close()
    with pytest.raises(UserError, match="does not answer") as caught:
        scheduler().jobs()
    assert "kubectl" in caught.value.fix


def test_why_a_job_waits(api: Api) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    api.pods = [{"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"conditions": [condition]}}]
    assert "Insufficient nvidia.com/gpu" in scheduler().explain_pending(PRETRAIN)


def test_refusals_say_what_to_do(api: Api) -> None:
    ours = scheduler()
    script = ours.render(LAUNCH)
    ours.submit(LAUNCH, script)
    with pytest.raises(UserError, match="409") as caught:
        ours.submit(LAUNCH, script)
    assert "another name" in caught.value.fix
    with pytest.raises(UserError, match="404"):
        ours.cancel(JobIdentity("nobody"))


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({}, "pending"),
        ({"replicatedJobsStatus": [{"name": "node", "active": 1}]}, "running"),
        ({"jobsStatus": [{"name": "node", "active": 1}]}, "running"),
        ({"conditions": [{"type": "Complete", "status": "True"}], "jobsStatus": [{"active": 1}]}, "completed"),
        ({"conditions": [{"type": t, "status": "True", "lastTransitionTime": "2026-11-15T00:00:01Z"}
                         for t in ("Created", "Running")]}, "running"),
    ],
)  # fmt: skip
def test_what_the_kinds_say_of_themselves(api: Api, status: dict[str, Any], word: str) -> None:
    api.objects["/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/pretrain"] = {
        "metadata": {"name": "pretrain"}, "status": status,
    }  # fmt: skip
    assert KubernetesScheduler(PodSettings(namespace="training"), "jobset").state(PRETRAIN).state == word


def test_without_a_kubeconfig_the_answer_is_that_it_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    for ask in (lambda ours: ours.jobs(), lambda ours: ours.state(PRETRAIN), lambda ours: ours.cancel(PRETRAIN)):
        with pytest.raises(Unreachable, match="no Kubernetes cluster is configured") as caught:
            ask(scheduler())
        assert caught.value.status == 1


def test_a_job_that_is_being_deleted_is_not_pending(api: Api) -> None:
    ours = scheduler()
    job = ours.submit(LAUNCH, ours.render(LAUNCH))
    api.objects[f"{JOBS}/pretrain"]["metadata"]["deletionTimestamp"] = "2026-11-15T00:00:00Z"
    status = ours.state(job)
    assert (status.state, status.reason, status.over) == ("completing", "it is being deleted", False)
