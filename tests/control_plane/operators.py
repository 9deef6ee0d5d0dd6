"""Small operators: what Kubeflow's training operator does with a PyTorchJob and the JobSet controller with a JobSet, as
far as a training needs it. They watch the API, make pods with the variables that the real ones give them, count what
became of the pods, and write conditions. What a deleted job owns is left to Kubernetes' own garbage collector."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from datetime import UTC, datetime
from typing import Any

import urllib3
from api_server import TOKEN, ControlPlane, free_ports
from local_pods import NODE, Node

Data = dict[str, Any]
JOBS = {
    "PyTorchJob": "/apis/kubeflow.org/v1/{}pytorchjobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/{}jobsets",
}
FULL = {"PyTorchJob": {"replicaStatuses": {}}}  # what a status must have
PODS = "/api/v1/{}pods"
JOB_LABEL = {"PyTorchJob": "training.kubeflow.org/job-name", "JobSet": "jobset.sigs.k8s.io/jobset-name"}


class Operators:
    """Watches jobs and pods; every event is handled by one thread, in order."""

    def __init__(self, plane: ControlPlane, node: Node, namespace: str) -> None:
        self.plane, self.node = plane, node
        self.events: queue.Queue[tuple[str, Data] | None] = queue.Queue()
        self.jobs: dict[str, Data] = {}  # uid -> object
        self.pods: dict[str, Data] = {}
        self.made: set[tuple[str, int]] = set()  # jobs, by uid, and which start of them has its pods made
        self.starts: dict[str, int] = {}
        self.ports: dict[str, int] = {}
        self.threads = [
            threading.Thread(target=self._watch, args=(path.format(f"namespaces/{namespace}/"),), daemon=True)
            for path in (*JOBS.values(), PODS)
        ]
        self.threads.append(threading.Thread(target=self._handle, daemon=True))
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.events.put(None)
        self.threads[-1].join()

    def _watch(self, path: str) -> None:
        """One stream for the whole test; it ends with the server."""
        with urllib3.PoolManager(ca_certs=str(self.plane.certificate), retries=False) as pool:
            stream = pool.request(
                "GET", f"{self.plane.server}{path}?watch=true&timeoutSeconds=3600", preload_content=False,
                headers={"Authorization": f"Bearer {TOKEN}"}, timeout=3600,
            )  # fmt: skip
            rest = b""
            with contextlib.suppress(urllib3.exceptions.ProtocolError):
                for part in stream.read_chunked(decode_content=True):
                    *lines, rest = (rest + part).split(b"\n")
                    for event in map(json.loads, lines):
                        self.events.put((event["type"], event["object"]))

    def _handle(self) -> None:
        while (event := self.events.get()) is not None:
            kind, item = event
            known = self.pods if item["kind"] == "Pod" else self.jobs
            uid = item["metadata"]["uid"]
            if kind == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = item
            if item["kind"] == "Pod":
                if kind != "DELETED":
                    self.node.see(item)
                owner = next(iter(item["metadata"].get("ownerReferences", ())), {}).get("uid", "")
                item = self.jobs.get(owner, {})
            if item and item["metadata"]["uid"] in self.jobs:
                self._reconcile(item)

    def _reconcile(self, job: Data) -> None:
        if job["metadata"].get("deletionTimestamp"):
            return
        uid, start = job["metadata"]["uid"], self._start(job)
        own = [pod for pod in self.pods.values() if _owned(pod, uid)]
        if (uid, start) not in self.made:
            if not own:  # those of the last start are gone
                self.made.add((uid, start))
                self._make(job)
            return
        wanted = [name for name, _, _ in self._templates(job)]
        phases = [pod.get("status", {}).get("phase") for pod in own if pod["metadata"]["name"] in wanted]
        if "Failed" in phases and start < _most_restarts(job):
            self.starts[uid] = start + 1
            for pod in own:
                self._call("DELETE", PODS, pod, f"/{pod['metadata']['name']}")
            self._status(job, {"restarts": start + 1})
        elif "Failed" in phases:
            self._condition(job, "Failed", "a pod failed")
        elif phases.count("Succeeded") == len(wanted):
            self._condition(job, "Succeeded" if job["kind"] == "PyTorchJob" else "Completed", "")
        elif phases.count("Running") + phases.count("Succeeded") == len(wanted):
            self._running(job)

    def _running(self, job: Data) -> None:
        if job["kind"] == "PyTorchJob":
            return self._condition(job, "Running", "")
        counts = {"active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}
        return self._status(job, {"replicatedJobsStatus": [{"name": "node", **counts}]})

    def _start(self, job: Data) -> int:
        """Which start of the job this is; only a JobSet starts again as a whole."""
        return self.starts.get(job["metadata"]["uid"], 0)

    def _templates(self, job: Data) -> list[tuple[str, Data, list[Data]]]:
        """Name, template and variables of each pod."""
        name = job["metadata"]["name"]
        port = self.ports.setdefault(job["metadata"]["uid"], free_ports(1)[0])
        if job["kind"] == "JobSet":
            one = job["spec"]["replicatedJobs"][0]["template"]["spec"]
            start = self._start(job)
            return [
                (f"{name}-node-0-{index}-{start}", _addressed(one["template"], port),
                 _variables(JOB_COMPLETION_INDEX=index))
                for index in range(one["parallelism"])
            ]  # fmt: skip
        replicas = job["spec"]["pytorchReplicaSpecs"]
        roles = [(role.lower(), i, r["template"]) for role, r in replicas.items() for i in range(r["replicas"])]
        return [
            (f"{name}-{role}-{index}", template, _variables(
                RANK=rank, WORLD_SIZE=len(roles), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, PYTHONUNBUFFERED=1,
            ))
            for rank, (role, index, template) in enumerate(roles)
        ]  # fmt: skip

    def _make(self, job: Data) -> None:
        meta = job["metadata"]
        owner = {
            "apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        for name, template, variables in self._templates(job):
            spec = json.loads(json.dumps(template["spec"])) | {"nodeName": NODE}
            spec["containers"][0]["env"] = [*variables, *spec["containers"][0].get("env", ())]
            labels = {**template["metadata"]["labels"], JOB_LABEL[job["kind"]]: meta["name"]}
            pod = {
                "apiVersion": "v1", "kind": "Pod", "spec": spec,
                "metadata": {
                    "name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner],
                },
            }  # fmt: skip
            status, answer = self._call("POST", PODS, pod, body=pod)
            assert status == 201, answer
        self._condition(job, "Created", "")

    def _condition(self, job: Data, kind: str, message: str) -> None:
        before = [c for c in job.get("status", {}).get("conditions", ()) if c["type"] != kind]
        if len(before) < len(job.get("status", {}).get("conditions", ())):
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        one = {"type": kind, "status": "True", "lastTransitionTime": now, "message": message or kind, "reason": kind}
        self._status(job, {"conditions": [*before, one]})

    def _status(self, job: Data, change: Data) -> None:
        full = {"status": {**FULL.get(job["kind"], {}), **change}}
        status, answer = self._call("PATCH", JOBS[job["kind"]], job, f"/{job['metadata']['name']}/status", full)
        assert status in (200, 404), answer  # 404: it was deleted meanwhile
        if status == 200:
            self.jobs[job["metadata"]["uid"]] = answer

    def _call(self, verb: str, path: str, item: Data, rest: str = "", body: Data | None = None) -> tuple[int, Any]:
        where = path.format(f"namespaces/{item['metadata']['namespace']}/") + rest
        content = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        return self.plane.request(verb, where, json.dumps(body) if body else "", content)


def _most_restarts(job: Data) -> int:
    return int(job["spec"]["failurePolicy"]["maxRestarts"]) if job["kind"] == "JobSet" else 0


def _owned(pod: Data, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))


def _variables(**values: Any) -> list[Data]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _addressed(template: Data, port: int) -> Data:
    """There is no DNS here that knows the pods, and their one port may be taken on this machine."""
    text = json.dumps(template)
    words = json.loads(text)["spec"]["containers"][0]["command"]
    fixed = [
        "--master-addr=127.0.0.1" if word.startswith("--master-addr=")
        else f"--master-port={port}" if word.startswith("--master-port=") else word
        for word in words
    ]  # fmt: skip
    made: Data = json.loads(text)
    made["spec"]["containers"][0]["command"] = fixed
    return made
