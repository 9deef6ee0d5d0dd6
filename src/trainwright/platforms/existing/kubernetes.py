"""Reads a running Kubernetes cluster through its API: nodes with GPUs and network cards, the kinds of jobs it has
operators for, Kueue's queues, storage classes and claims. Only GET requests are made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from trainwright.catalog.instances import find_instance
from trainwright.errors import UserError
from trainwright.platforms.existing.discovery import Discovery, spec_name
from trainwright.schedulers.kubernetes.scheduler import PATIENCE, KubernetesScheduler

Get = Callable[[str], dict[str, Any] | None]  # path -> object; None where there is none or it may not be read

_TYPE = "node.kubernetes.io/instance-type"
_DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neurondevice")
_CARDS = ("vpc.amazonaws.com/efa", "rdma/hca", "rdma/ib", "nvidia.com/mlnxnics")
# Custom resource -> the kind of job that a spec names, the best first.
_KINDS = {
    "pytorchjobs.kubeflow.org": "pytorchjob",
    "jobsets.jobset.x-k8s.io": "jobset",
    "trainjobs.trainer.kubeflow.org": "trainjob",
    "mpijobs.kubeflow.org": "mpijob",
    "rayjobs.ray.io": "rayjob",
}
_KUEUE = ("v1beta2", "v1beta1")


def api_get(context: str | None) -> Get:
    """GET through the official client, with the kubeconfig's own credentials."""
    api = KubernetesScheduler(context=context)._api_client()  # the one place that knows how to load a kubeconfig

    def get(path: str) -> dict[str, Any] | None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = api.call_api(
                path, "GET", response_type=None, auth_settings=["BearerToken"], _preload_content=False,
                _return_http_data_only=True, _request_timeout=PATIENCE,
            )  # fmt: skip
        except ApiException as error:
            if error.status in (403, 404):
                return None
            raise UserError(f"the cluster answered {error.status}: {error.reason}", where=path) from None
        except HTTPError as error:
            raise UserError(
                f"cannot reach the cluster: {error}",
                where=f"context {context or 'current'}",
                fix="`kubectl --context NAME get nodes` must work first",
            ) from None
        data: dict[str, Any] = json.loads(answer.data)
        return data

    return get


def discover_kubernetes(get: Get, context: str | None = None, namespace: str = "default") -> Discovery:
    """The cluster behind the API."""
    listed = get("/api/v1/nodes")
    if listed is None:
        raise UserError("the nodes of the cluster may not be read", fix="ask for the right to list nodes")
    result = Discovery(f"Kubernetes, context {context or 'current'}")
    name = spec_name((context or "cluster").rsplit("/", 1)[-1], "cluster")
    result.spec = {"name": name, "platform": "kubernetes", "queues": []}
    version = get("/version") or {}
    result.facts = {"kubernetes": version.get("gitVersion", ""), "nodes": []}
    _nodes(result, listed["items"])
    settings: dict[str, Any] = {"namespace": namespace} if namespace != "default" else {}
    settings |= {"context": context} if context else {}
    settings |= _kinds(result, get)
    settings |= _claims(result, get, namespace)
    if settings:
        result.spec["kubernetes"] = settings
    _queues(result, get, namespace)
    _gang(result, get)
    return result


def _nodes(result: Discovery, items: list[dict[str, Any]]) -> None:
    """Nodes of one instance type, or of one shape, are a queue."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for item in items:
        labels, able = item["metadata"].get("labels", {}), item.get("status", {}).get("allocatable", {})
        gpus = sum(_whole(able.get(device, "0")) for device in _DEVICES)
        groups.setdefault((labels.get(_TYPE, ""), gpus, _cpus(able.get("cpu", "0"))), []).append(item)
    trains = any(gpus for _, gpus, _ in groups)
    taken: Counter[str] = Counter()
    for (kind, gpus, cpus), nodes in sorted(groups.items(), key=lambda group: (-group[0][1], group[0])):
        able = nodes[0].get("status", {}).get("allocatable", {})
        cards = {card: able[card] for card in _CARDS if able.get(card, "0") not in ("0", 0)}
        ready = sum(_ready(node) for node in nodes)
        fact = {"type": kind, "nodes": len(nodes), "ready": ready, "gpus": gpus, "cpus": cpus, "cards": cards}
        result.facts["nodes"].append(fact)
        if trains and not gpus:
            result.notes.append(f"{len(nodes)} nodes {kind or 'without GPUs'} are left out: others have GPUs")
            continue
        name = spec_name(kind.removeprefix("ml.").replace(".", "-") or "nodes", "nodes")
        taken[name] += 1
        queue: dict[str, Any] = {"name": name if taken[name] == 1 else f"{name}-{taken[name]}"}
        if kind and find_instance(kind.removeprefix("ml.")) is not None:
            queue |= {"instance": kind.removeprefix("ml."), "count": len(nodes)}
        else:
            queue |= {"nodes": len(nodes), "cpus": max(1, cpus), **({"gpus": gpus} if gpus else {})}
        result.spec["queues"].append(queue)
        if ready < len(nodes):
            result.notes.append(f"{len(nodes) - ready} of {len(nodes)} nodes {kind} are not ready")
    if not result.spec["queues"]:
        result.notes.append("the cluster has no nodes: the spec needs a queue")


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and not node.get("spec", {}).get("unschedulable", False)


def _kinds(result: Discovery, get: Get) -> dict[str, str]:
    """Which kinds of jobs the cluster has an operator for."""
    listed = get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    if listed is None:
        result.notes.append("custom resources may not be read: check that `kubernetes: kind` is installed")
        return {}
    names = {item["metadata"]["name"] for item in listed["items"]}
    kinds = [kind for resource, kind in _KINDS.items() if resource in names]
    result.facts["kinds"] = kinds
    result.facts["operators"] = sorted(name for name in names if name.endswith((".kueue.x-k8s.io", ".ray.io")))
    if not kinds:
        result.notes.append("no operator for PyTorchJob, JobSet, TrainJob, MPIJob or RayJob is installed")
    return {"kind": kinds[0]} if kinds and kinds[0] != "pytorchjob" else {}


def _claims(result: Discovery, get: Get, namespace: str) -> dict[str, Any]:
    """Claims that many pods can write to, as file systems at a folder of the claim's name."""
    classes = (get("/apis/storage.k8s.io/v1/storageclasses") or {}).get("items", [])
    result.facts["storage_classes"] = {item["metadata"]["name"]: item.get("provisioner", "") for item in classes}
    listed = (get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims") or {}).get("items", [])
    shared = [
        item["metadata"]["name"] for item in listed if "ReadWriteMany" in item.get("spec", {}).get("accessModes", [])
    ]
    result.facts["claims"] = shared
    if not shared:
        result.notes.append("no claim with ReadWriteMany in the namespace: jobs need one for the run folder")
        result.spec["runs"] = "/fsx/trainwright/runs"
        return {}
    folders = {f"/{name}": name for name in shared}
    result.spec["storage"] = [{"mount": folder, "folder": folder} for folder in folders]
    result.notes.append("claims are mounted at folders of their names: change `kubernetes: claims` as scripts expect")
    return {"claims": folders}


def _queues(result: Discovery, get: Get, namespace: str) -> None:
    """Kueue's queues of the namespace: jobs name one by a label."""
    for version in _KUEUE:
        listed = get(f"/apis/kueue.x-k8s.io/{version}/namespaces/{namespace}/localqueues")
        if listed is None:
            continue
        names = [item["metadata"]["name"] for item in listed.get("items", [])]
        result.facts["kueue"] = names
        if len(names) == 1:
            result.spec.setdefault("kubernetes", {})["kueue"] = names[0]
        elif names:
            result.notes.append(f"Kueue queues of the namespace (`kubernetes: kueue`): {', '.join(names)}")
        return


def _gang(result: Discovery, get: Get) -> None:
    """The gang scheduler that the training operator was started with; the operator alone knows it."""
    deployments = (get("/apis/apps/v1/deployments") or {}).get("items", [])
    for item in deployments:
        for container in item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            words = " ".join([*container.get("command", []), *container.get("args", [])])
            match = re.search(r"--gang-scheduler-name[= ](volcano|scheduler-plugins)", words)
            if match is not None:
                result.facts["gang"] = match[1]
                kind = result.spec.get("kubernetes", {}).get("kind", "pytorchjob")
                if kind in ("pytorchjob", "mpijob"):
                    result.spec.setdefault("kubernetes", {})["gang"] = match[1]
                return


def _whole(text: Any) -> int:
    return int(text) if str(text).isdecimal() else 0


def _cpus(text: str) -> int:
    """`95690m` and `96`, in whole CPUs."""
    return int(text[:-1]) // 1000 if text.endswith("m") and text[:-1].isdecimal() else _whole(text)
