"""A RayJob: KubeRay starts a Ray cluster of one pod per node, runs the driver of `ray_driver.py` on its head, and
removes the cluster when the job is over."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.jobs.frameworks import driver_words
from trainwright.schedulers.base import Launch, State
from trainwright.schedulers.kubernetes import ray_driver
from trainwright.schedulers.kubernetes.pod import Data, PodSettings, pod, resources, template, torchrun

DRIVER, JOB = "TRAINWRIGHT_RAY_DRIVER", "TRAINWRIGHT_RAY_JOB"
# `ray job submit` splits and joins words by other rules than a shell's: a long text with quotes does not survive it.
ENTRYPOINT = f"python3 -c \"import os; exec(os.environ['{DRIVER}'])\""
HEAD = {"cpu": "2", "memory": "8Gi"}  # Ray's own services; the ranks are on the other pods
# What Ray and KubeRay call a job's state -> our word.
STATES: dict[str, State] = {
    "": "pending", "Initializing": "pending", "Waiting": "pending", "Suspending": "pending", "Suspended": "pending",
    "Running": "running", "Retrying": "running", "Complete": "completed", "Failed": "failed",
}  # fmt: skip


def rayjob_spec(launch: Launch, settings: PodSettings) -> Data:
    """The specification of a RayJob."""
    worker = pod(launch, settings, "ray-worker", [], "Never")
    main = worker["containers"][0]
    del main["command"]  # KubeRay starts Ray in it
    main["lifecycle"] = _before_the_end("node", "kill -TERM $pid; ")
    spec: Data = {
        "entrypoint": ENTRYPOINT,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": template(launch, settings, _submitter(launch), "launcher"),
        "shutdownAfterJobFinishes": True,
        "backoffLimit": launch.retries if launch.requeue else 0,  # each retry has a new Ray cluster
        "rayClusterSpec": {
            "headGroupSpec": {
                # Without processors of its own the head runs no rank.
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},
                "template": template(launch, settings, _head(launch, settings, main["env"]), "head"),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "node", "replicas": launch.nodes, "minReplicas": launch.nodes,
                    "maxReplicas": launch.nodes, "rayStartParams": {}, "template": template(launch, settings, worker),
                }
            ],
        },
    }  # fmt: skip
    if launch.time is not None:
        spec["activeDeadlineSeconds"] = launch.time
    return spec


def _head(launch: Launch, settings: PodSettings, environment: list[Data]) -> Data:
    job: Data = {
        "nodes": launch.nodes,
        "gpus": int(resources(launch, settings).get("nvidia.com/gpu", 0)),
        "command": torchrun(launch, "$(NODE_RANK)", "$(MASTER_ADDR)", "$(MASTER_PORT)"),
    }
    if words := driver_words(launch.command):  # it needs a Ray cluster, which is there: it runs once and takes no GPU
        job = {"nodes": 1, "gpus": 0, "command": list(words)}
    driver = Path(ray_driver.__file__).read_text(encoding="utf-8")
    own = [{"name": DRIVER, "value": _literal(driver)}, {"name": JOB, "value": _literal(json.dumps(job))}]
    container = {
        "name": "ray-head",
        "image": launch.container,
        "env": [*environment, *own],
        "resources": {"requests": dict(HEAD), "limits": dict(HEAD)},
    }
    container["lifecycle"] = _before_the_end("driver", "")  # Ray goes with its head: the nodes save first
    return {"containers": [container], "terminationGracePeriodSeconds": launch.grace}


def _before_the_end(process: str, notice: str) -> Data:
    """What Kubernetes runs before it signals a pod that it ends. The signal would reach Ray alone, which kills the
    ranks: they get it here, as in every other kind of job, and the grace period to save."""
    find = f"pid=$(cat ${{TMPDIR:-/tmp}}/trainwright-{process}.pid) || exit 0; "
    wait = "while kill -0 $pid 2> /dev/null; do sleep 1; done"
    return {"preStop": {"exec": {"command": ["sh", "-c", find + notice + wait]}}}


def _literal(text: str) -> str:
    """Kubernetes fills in `$(NAME)` in the value of a variable; `$$(NAME)` stays as it is, with one dollar."""
    return text.replace("$(", "$$(")


def _submitter(launch: Launch) -> Data:
    """The pod that hands the job to the head and prints what the driver prints."""
    few = {"cpu": "500m", "memory": "512Mi"}
    container = {"name": "ray-job-submitter", "image": launch.container, "resources": {"requests": few, "limits": few}}
    return {"restartPolicy": "Never", "containers": [container]}


def ray_state(status: Data) -> tuple[State, str]:
    """State and reason of a RayJob: its own status has no conditions."""
    words = str(status.get("jobDeploymentStatus", ""))
    state: State = STATES.get(words, "unknown")
    if words == "Complete" and status.get("jobStatus") in ("FAILED", "STOPPED"):
        state = "failed"
    return state, str(status.get("message") or status.get("reason") or "")
