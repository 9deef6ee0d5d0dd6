"""The Kubernetes scheduler: manifests in, job states and logs out, through the cluster's own API."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import yaml

from trainwright.errors import UserError, did_you_mean
from trainwright.schedulers.base import JobIdentity, JobStatus, Launch, RunsImages, Script, State, assert_honoured
from trainwright.schedulers.kubernetes.kinds import KINDS, NODES, QUEUE, Kind, node_number
from trainwright.schedulers.kubernetes.own_config import own_kubeconfig
from trainwright.schedulers.kubernetes.pod import ARCHIVE, CODE_SHA256, CODE_URL, PodSettings, object_name
from trainwright.schedulers.kubernetes.ray import ray_state
from trainwright.schedulers.logs import by_rank
from trainwright.schedulers.secret_values import all_values
from trainwright.schedulers.shell import Shell, Unreachable
from trainwright.yaml_numbers import looks_like_number

PATIENCE = (5.0, 30.0)  # seconds to reach the API, and for one answer of it
# What the operators call a job's condition -> our word. The last condition that is true counts.
_CONDITIONS: dict[str, State] = {
    "Created": "pending", "Suspended": "pending", "Running": "running", "Restarting": "running",
    "StartupPolicyCompleted": "running", "Succeeded": "completed", "Complete": "completed", "Completed": "completed",
    "Failed": "failed",
}  # fmt: skip


class _Plain(yaml.SafeDumper):
    """YAML without anchors: a pod that two replicas share is written out twice, for people to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A script of several lines as lines, and `1e-5` in quotes: kubectl refuses an argument that is a number."""
        style = "|" if "\n" in data else "'" if looks_like_number(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Plain.add_representer(str, _Plain.represent_str)


@dataclass(frozen=True)
class KubernetesScheduler(RunsImages):
    """Jobs as custom resources of one namespace. `kind` is one of KINDS."""

    settings: PodSettings = field(default_factory=PodSettings)
    kind: str = "pytorchjob"
    context: str | None = None  # of the kubeconfig
    cluster: str = ""
    shell: Shell = field(default_factory=Shell)
    name = "kubernetes"

    @property
    def at(self) -> dict[str, str]:
        """What finds this scheduler again."""
        return {"namespace": self.settings.namespace, "kind": self.kind, "context": self.context or ""}

    @property
    def _kind(self) -> Kind:
        if self.kind not in KINDS:
            hint = did_you_mean(self.kind, KINDS) or f"there are: {', '.join(KINDS)}"
            raise UserError(f"no kind of Kubernetes job {self.kind!r}", fix=hint)
        return KINDS[self.kind]

    def render(self, launch: Launch) -> Script:
        """The manifest, as `kubectl apply` would take it; the reasons of computed variables are comments on top."""
        assert_honoured(launch, self.name)
        manifest = self._kind.build(launch, self.settings)
        head = [
            f"# {launch.name}: {launch.nodes} nodes of {launch.processes} processes. By hand: kubectl apply -f job.yaml"
        ]
        names = [f'--from-literal={secret.name}="${secret.name}"' for secret in launch.secret_env]
        head += [f"# Before it: kubectl create secret generic {object_name(launch)} {' '.join(names)}"] if names else []
        # As JSON where a value could leave its comment.
        shown = (line.value if line.value.isprintable() else json.dumps(line.value) for line in launch.environment)
        head += [f"# {line.name}={value}: {line.why}" for line, value in zip(launch.environment, shown, strict=True)]
        return Script(
            "job.yaml", "\n".join(head) + "\n" + yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=110)
        )

    def submit(self, launch: Launch, script: Script) -> JobIdentity:
        manifest = yaml.safe_load(script.text)
        beside = self._beside(manifest, launch)
        made: list[dict[str, Any]] = []
        try:
            for body in beside:
                with _api_errors(f"the {body['kind']} of job {launch.name}"):
                    self._of_kind("create", body["kind"])(self.settings.namespace, body, _request_timeout=PATIENCE)
                made.append(body)
            with _api_errors(f"job {launch.name}"):
                job = self._objects().create_namespaced_custom_object(
                    *self._where(), manifest, _request_timeout=PATIENCE
                )
        except BaseException:
            for body in made:
                name = body["metadata"]["name"]
                self._of_kind("delete", body["kind"])(name, self.settings.namespace, _request_timeout=PATIENCE)
            raise
        self._own(job, made)
        name, uid = str(manifest["metadata"]["name"]), str(job.get("metadata", {}).get("uid", ""))
        return JobIdentity(name, launch.folder.name, uid, time.time())

    def _beside(self, manifest: dict[str, Any], launch: Launch) -> list[dict[str, Any]]:
        """What a job's pods read from the cluster: the user's secrets, and the code."""
        meta = {key: manifest["metadata"][key] for key in ("name", "namespace", "labels")}
        made: list[dict[str, Any]] = []
        values = all_values(launch)
        if launch.archive_url:
            values |= {CODE_URL: launch.archive_url, CODE_SHA256: hashlib.sha256(launch.archive).hexdigest()}
        if values:
            made.append(
                {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": values}
            )
        if launch.archive and not launch.archive_url:
            data = {ARCHIVE: base64.b64encode(launch.archive).decode()}
            made.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": data})
        return made

    def _own(self, job: dict[str, Any], made: list[dict[str, Any]]) -> None:
        """Let the cluster remove what was made for a job together with it."""
        meta = job["metadata"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta.get("uid", "")}
        change = {"metadata": {"ownerReferences": [owner]}}
        for body in made:
            with _api_errors(f"the {body['kind']} of job {meta['name']}"):
                self._of_kind("patch", body["kind"])(
                    meta["name"], self.settings.namespace, change, _request_timeout=PATIENCE
                )

    def _of_kind(self, verb: str, kind: str) -> Callable[..., Any]:
        noun = {"Secret": "secret", "ConfigMap": "config_map"}[kind]
        call: Callable[..., Any] = getattr(self._core(), f"{verb}_namespaced_{noun}")
        return call

    def jobs(self) -> list[JobStatus]:
        with _api_errors(f"namespace {self.settings.namespace}"):
            listed = self._objects().list_namespaced_custom_object(
                *self._where(), label_selector="app.kubernetes.io/managed-by=trainwright", _request_timeout=PATIENCE
            )
        return [self._status(item) for item in listed["items"]]

    def state(self, job: JobIdentity) -> JobStatus:
        with _api_errors(f"job {job.id}"):
            item = self._objects().get_namespaced_custom_object(*self._where(), job.id, _request_timeout=PATIENCE)
        if job.start and item["metadata"].get("uid", job.start) != job.start:
            reason = "the object of that name was created again since"
            return JobStatus(job.id, job.name, "unknown", self.name, self.cluster, reason=reason)
        return self._status(item)

    def cancel(self, job: JobIdentity) -> None:
        """Delete the object, if it is still the one that was submitted."""
        options = {"propagationPolicy": "Foreground", **({"preconditions": {"uid": job.start}} if job.start else {})}
        with _api_errors(f"job {job.id}"):
            self._objects().delete_namespaced_custom_object(*self._where(), job.id, body=options)

    def logs(
        self, job: JobIdentity, folder: str, seen: dict[str, str], rank: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """From the API: the run folder is out of reach."""
        return by_rank(self._pod_logs(job.id, seen), rank, node_number)

    def _pod_logs(self, job: str, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
        core = self._core()
        for pod in self._pods(core, job):
            name = pod.metadata.name
            if (pod.status.phase if pod.status else "") == "Pending":
                continue
            before = seen.get(name, "")
            lines = self._pod_lines(core, name, before)
            for moment, _, line in (line.partition(" ") for line in lines):
                # The API's moments have nanoseconds and one length: a later one sorts after.
                if moment > before:
                    seen[name] = moment
                    yield name, line

    def _pod_lines(self, core: Any, pod: str, since: str) -> list[str]:
        """Lines of a pod's log; none of a pod that was deleted since it was listed, as where a JobSet starts again."""
        from kubernetes.client import ApiException

        more = {"since_seconds": _seconds_since(since)} if since else {}
        with _api_errors(f"pod {pod}"):
            try:
                stream = core.read_namespaced_pod_log(
                    pod, self.settings.namespace, timestamps=True, _preload_content=False, _request_timeout=PATIENCE,
                    **more,
                )  # fmt: skip
            except ApiException as error:
                if error.status == 404:
                    return []
                raise
            lines: list[str] = stream.data.decode(errors="replace").splitlines()
        return lines

    def explain_pending(self, job: JobIdentity) -> str:
        """Why the pods of a job do not start, in the words of the cluster's own scheduler."""
        pods = self._pods(self._core(), job.id)
        reasons = {c.message for pod in pods for c in pod.status.conditions or [] if c.status == "False" and c.message}
        return "; ".join(sorted(reasons)) or ("no pod was made yet" if not pods else "its pods are not held back")

    def _pods(self, core: Any, job: str) -> list[Any]:
        selector = f"{self._kind.pod_label}={job}"
        with _api_errors(f"job {job}"):
            pods = core.list_namespaced_pod(
                self.settings.namespace, label_selector=selector, _request_timeout=PATIENCE
            ).items
        return sorted(pods, key=lambda pod: pod.metadata.name)

    def _status(self, item: dict[str, Any]) -> JobStatus:
        status = item.get("status", {})
        true = [c for c in status.get("conditions", []) if c.get("status") == "True"]
        # Sorting keeps the order of what came in the same second: the later one counts.
        last: dict[str, str] = (sorted(true, key=lambda c: c.get("lastTransitionTime") or "") or [{}])[-1]
        state = _CONDITIONS.get(last.get("type", "Created"), "unknown")
        if self.kind == "rayjob":
            state, message = ray_state(status)
            last = {"message": message}
        meta = item["metadata"]
        if meta.get("deletionTimestamp"):  # it stays listed until its pods have ended
            state, last = "completing", {"message": "it is being deleted"}
        notes = meta.get("annotations") or {}
        return JobStatus(
            id=meta["name"],
            name=(meta.get("labels") or {}).get("app.kubernetes.io/name", meta["name"]),
            queue=notes.get(QUEUE, ""),
            nodes=int(notes.get(NODES, 0)),
            state="running" if state == "pending" and _has_active_pods(status) else state,
            scheduler=self.name,
            cluster=self.cluster,
            reason=last.get("message", "") or last.get("reason", ""),
            submitted=meta.get("creationTimestamp", ""),
            started=status.get("startTime", ""),
            ended=status.get("completionTime", "") or status.get("endTime", ""),
            restarts=int(status.get("restarts", 0) or status.get("failed", 0)),
        )

    def _where(self) -> tuple[str, str, str, str]:
        return self._kind.group, self._kind.version, self.settings.namespace, self._kind.plural

    def _core(self) -> Any:
        return self._client().CoreV1Api(self._api_client())

    def _objects(self) -> Any:
        return self._client().CustomObjectsApi(self._api_client())

    def _api_client(self) -> Any:
        self._client()
        from kubernetes import client, config

        settings = client.Configuration()
        settings.retries = 1  # a cluster that does not answer is reported soon
        try:
            own = own_kubeconfig(self.context) if self.context else None
            file = str(own) if own is not None and own.is_file() else None
            config.load_kube_config(config_file=file, context=self.context or None, client_configuration=settings)
            if not settings.verify_ssl:
                _say_unverified(settings.host)
            return client.ApiClient(configuration=settings)
        except config.ConfigException as error:
            raise Unreachable(
                f"no Kubernetes cluster is configured: {error}", fix="aws eks update-kubeconfig --name CLUSTER"
            ) from error

    @staticmethod
    def _client() -> Any:
        try:
            from kubernetes import client
        except ImportError as error:
            raise UserError("the Kubernetes client is not installed", fix="pip install 'trainwright[k8s]'") from error
        return client


@cache
def _say_unverified(server: str) -> None:
    """Once instead of urllib3's warning at every request."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    print(f"{server}: the kubeconfig asks not to verify who answers there", file=sys.stderr)


def _has_active_pods(status: dict[str, Any]) -> bool:
    """JobSet and TrainJob have no condition for a job that runs; they count its pods."""
    counted = [*status.get("replicatedJobsStatus", ()), *status.get("jobsStatus", ())]
    return any(one.get("active", 0) and not one.get("suspended", 0) for one in counted)


def _seconds_since(moment: str) -> int:
    """A little more than has passed since a line of a log: the clocks of two machines are never quite the same."""
    then = datetime.fromisoformat(f"{moment[:19]}+00:00")
    return max(1, int((datetime.now(UTC) - then).total_seconds())) + 300


class _api_errors:
    """The API's refusals as errors of ours: what was asked, what the cluster said, what to do."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and kind.__module__.startswith("urllib3."):
            raise Unreachable(
                f"the Kubernetes API does not answer: {error}", where=self.where, fix="see `kubectl get nodes`"
            ) from error
        # Every error of ours has a status too (the exit status): only the API's own are translated.
        if kind is None or not kind.__module__.startswith("kubernetes.") or not hasattr(error, "reason"):
            return
        status = error.status
        fix = {
            401: "the credentials have run out: renew them",
            403: "ask for the right to do this in the namespace",
            404: "see `trainwright jobs`; or the cluster lacks the operator for this kind of job",
            409: "a job of that name exists: cancel it, or give this one another name",
        }.get(status, "")
        raise UserError(f"the Kubernetes API refused: {status} {error.reason}", where=self.where, fix=fix) from error
