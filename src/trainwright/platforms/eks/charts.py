"""Which charts and manifests a spec's cluster needs, from charts.toml: one pinned set for all."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.platforms.eks.karpenter import chart_values as karpenter_values
from trainwright.platforms.eks.karpenter import karpenter_queues
from trainwright.platforms.eks.nodegroups import GPU_LABEL
from trainwright.platforms.monitoring.kubernetes import chart_values
from trainwright.platforms.setting import Setting
from trainwright.schedulers.kubernetes.pod import GPU_TOLERATION

IN_HYPERPODS_CHART = {"gpu", "efa", "pytorchjob", "mpijob"}  # device plugins and operators that it installs itself


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("charts.toml").read_text(encoding="utf-8"))


def needs(setting: Setting) -> set[str]:
    """What the spec's queues and jobs call for, in the words of charts.toml."""
    spec = setting.spec
    machines = [setting.queue_instance(queue) for queue in spec.queues]
    words = {"always", spec.kubernetes.kind, *(job.kind for job in spec.jobs if job.kind)}
    words |= {"monitoring"} if spec.monitoring else set()
    words |= {"gpu"} if any(machine.is_gpu for machine in machines) else set()
    # HyperPod's nodes are labelled by HyperPod, in words of its own: there the exporter of ours is all.
    words |= {"gpu-monitoring"} if words >= {"gpu", "monitoring"} and spec.platform == "eks" else set()
    words |= {"efa"} if any(queue.efa for queue in spec.queues) else set()
    words |= {"karpenter"} if karpenter_queues(spec) else set()
    return (words - IN_HYPERPODS_CHART) | {"hyperpod"} if spec.platform == "hyperpod-eks" else words


def charts(setting: Setting) -> list[dict[str, Any]]:
    """The charts to install, in order, each with its values."""
    chosen = [chart for chart in _table()["chart"] if chart["when"] in needs(setting)]
    return [{**chart, "values": _values(chart["name"], setting)} for chart in chosen]


def manifests(setting: Setting) -> list[dict[str, Any]]:
    """What comes as plain manifests, applied by kubectl: at their address, or with changes, of a folder of the plan."""
    chosen = [manifest for manifest in _table()["manifest"] if manifest["when"] in needs(setting)]
    return [{**row, "folder": f"operators/{row['name']}" if "without" in row else ""} for row in chosen]


def kustomizations(setting: Setting) -> dict[str, dict[str, Any]]:
    """File of the plan -> what it changes of a manifest: kinds that another operator owns, the operator's arguments."""
    rows = [row for row in manifests(setting) if row["folder"]]
    return {f"{row['folder']}/kustomization.yaml": _kustomization(row) for row in rows}


def _kustomization(manifest: dict[str, Any]) -> dict[str, Any]:
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    left_out = [{"$patch": "delete", **crd, "metadata": {"name": name}} for name in manifest["without"]]
    arguments = {"op": "add", "path": "/spec/template/spec/containers/0/args", "value": manifest["arguments"]}
    operator = {"kind": "Deployment", "name": manifest["name"]}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [manifest["url"]],
        "patches": [
            *({"patch": json.dumps(patch)} for patch in left_out),
            {"target": operator, "patch": json.dumps([arguments])},
        ],
    }


def _values(chart: str, setting: Setting) -> dict[str, Any]:
    """The few values that differ from a chart's own: plugins run on the tainted nodes, on every type of the spec."""
    if chart == "nvidia-device-plugin":
        return {"tolerations": [GPU_TOLERATION]}
    if chart == "dcgm-exporter":
        where = {"tolerations": [GPU_TOLERATION], "nodeSelector": {GPU_LABEL: "true"}}
        return {**where, "serviceMonitor": {"enabled": True, "interval": "15s"}}
    if chart == "aws-efa-k8s-device-plugin":
        types = sorted({setting.queue_instance(queue).name for queue in setting.spec.queues if queue.efa})
        return {
            "tolerations": [GPU_TOLERATION, {"key": "CriticalAddonsOnly", "operator": "Exists"}],
            "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": types},
        }
    if chart == "hyperpod-dependencies":
        return _hyperpod(setting)
    if chart == "kubeflow-trainer" and "jobset" in needs(setting):
        return {"jobset": {"install": False}}  # it would bring a second controller of the same kind
    if chart == "karpenter":
        return karpenter_values(setting.spec)
    if chart == "kube-prometheus-stack" and setting.spec.monitoring:
        return chart_values(setting.spec.name, setting.spec.monitoring)
    return {}


def _hyperpod(setting: Setting) -> dict[str, Any]:
    """Of HyperPod's own chart: the operators that jobs need, and EFA on the types of the spec."""
    spec = setting.spec
    kinds = {spec.kubernetes.kind, *(job.kind for job in spec.jobs if job.kind)}
    types = sorted({f"ml.{setting.queue_instance(queue).name}" for queue in spec.queues if queue.efa})
    return {
        "global": {"region": spec.region},
        "trainingOperators": {"enabled": "pytorchjob" in kinds},
        "mpi-operator": {"enabled": "mpijob" in kinds},
        "kuberay": {"enabled": False},
        **({"aws-efa-k8s-device-plugin": {"supportedInstanceLabels": {"values": types}}} if types else {}),
    }
