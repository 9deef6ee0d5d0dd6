"""Monitoring on Kubernetes, for EKS and HyperPod: the exporter as a DaemonSet that carries its code, and for clusters
with the Prometheus operator what it scrapes, its rules and the dashboards that Grafana's sidecar loads."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

from trainwright.node_side import node_files
from trainwright.platforms.monitoring.alertmanager import alertmanager_config
from trainwright.platforms.monitoring.dashboards import dashboard_files
from trainwright.platforms.monitoring.prometheus import NODE_LABEL, PORT, managed_workspace, prometheus_config
from trainwright.platforms.monitoring.rules import rule_files
from trainwright.spec.model import Monitoring

NAME = "trainwright-exporter"
NAMESPACE, ACCOUNT = "monitoring", "prometheus"  # of Prometheus itself, by which it has its role
# Prometheus drops its oldest blocks before the kubelet evicts it for a full volume on a system node of 50 GiB.
RETENTION_SIZE, VOLUME_SIZE = "8GB", "12Gi"
HIDDEN = ("kubeScheduler", "kubeControllerManager", "kubeEtcd")  # EKS hides them: alerts would fire for ever
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "trainwright"}
IMAGE = "public.ecr.aws/docker/library/python:3.12-slim"
START = (
    "python3 -m zipfile -e /code/exporter.zip /tmp/code && PYTHONPATH=/tmp/code exec python3 -m trainwright.exporters"
)


def manifests(namespace: str = NAMESPACE, image: str = IMAGE) -> list[dict[str, Any]]:
    """Everything, in the order it is applied."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": LABELS}},
        _code(namespace, exporter_archive()),
        _daemon_set(namespace, image),
        _pod_monitor(namespace),
        _rules(namespace),
        *_dashboards(namespace),
    ]


def chart_values(cluster: str, monitoring: Monitoring) -> dict[str, Any]:
    """Values of the chart kube-prometheus-stack: it takes our rules, pods and dashboards from every namespace."""
    remote = prometheus_config(cluster, {}, "", remote_write=monitoring.remote_write).get("remote_write")
    prometheus = {
        "externalLabels": {"cluster": cluster},
        "retention": f"{monitoring.retention_days}d",
        "retentionSize": RETENTION_SIZE,
        "storageSpec": {"emptyDir": {"sizeLimit": VOLUME_SIZE}},
        "podMonitorSelectorNilUsesHelmValues": False,
        "serviceMonitorSelectorNilUsesHelmValues": False,
        "ruleSelectorNilUsesHelmValues": False,
        **({"remoteWrite": remote, "podMetadata": _restarted_for(monitoring)} if remote else {}),
    }
    return {
        "prometheus": {"serviceAccount": {"name": ACCOUNT}, "prometheusSpec": prometheus},
        "alertmanager": {"config": _alertmanager(monitoring)},
        "grafana": {
            # Without one the chart takes a password that everybody knows; an empty one makes it keep a random one.
            "adminPassword": "",
            "sidecar": {"dashboards": {"enabled": True, "searchNamespace": "ALL"}},
        },
        **{part: {"enabled": False} for part in HIDDEN},
    }


def _restarted_for(monitoring: Monitoring) -> dict[str, Any]:
    """A pod gets the role of its service account when it starts: another address needs another start."""
    return {"annotations": {"trainwright/remote-write": monitoring.remote_write}}


def pod_identity(monitoring: Monitoring | None) -> dict[str, Any] | None:
    """The right of Prometheus to write to the managed workspace that the spec names; None where it names none."""
    workspace = managed_workspace(monitoring.remote_write) if monitoring else None
    if workspace is None:
        return None
    write = {"Effect": "Allow", "Action": ["aps:RemoteWrite"], "Resource": [workspace]}
    policy = {"Version": "2012-10-17", "Statement": [write]}
    return {"namespace": NAMESPACE, "serviceAccountName": ACCOUNT, "permissionPolicy": policy}


def _alertmanager(monitoring: Monitoring) -> dict[str, Any]:
    """Helm merges this into the chart's own configuration, whose routes name a receiver "null": a list of ours
    replaces them, and the receiver is there for whoever adds one. Without it the operator refuses the configuration."""
    config = alertmanager_config(monitoring.alerts)
    return {
        **config,
        "route": {**config["route"], "routes": []},
        "receivers": [*config["receivers"], {"name": "null"}],
    }


def exporter_archive() -> bytes:
    """The exporter and the node checks as a zip file; the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in node_files().items():
            if "/" not in name or name.startswith(("exporters/", "health/")):
                archive.writestr(zipfile.ZipInfo(f"trainwright/{name}", (1980, 1, 1, 0, 0, 0)), content)
    return packed.getvalue()


def _metadata(namespace: str, name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {**LABELS, **labels}}


def _code(namespace: str, archive: bytes) -> dict[str, Any]:
    data = {"exporter.zip": base64.b64encode(archive).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(namespace, NAME), "binaryData": data}


def _daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """On every node, whatever its taints, in the host's network: its interfaces are measured."""
    address = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    # The NVIDIA runtime adds NVML to a container that asks for it; no GPU is taken from the jobs.
    gpus = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]
    container = {
        "name": "exporter",
        "image": image,
        "command": ["sh", "-c", f'{START} --address "$HOST_IP" --port {PORT} --root /host'],
        "env": [address, node, *gpus],
        "ports": [{"name": "metrics", "containerPort": PORT, "hostPort": PORT}],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYSLOG", "DAC_READ_SEARCH"]},
        },
        "volumeMounts": [
            {"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"},
            {"name": "code", "mountPath": "/code", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
    pod = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/"}},
            {"name": "code", "configMap": {"name": NAME}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    spec = {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": _metadata(namespace, NAME), "spec": spec}


def _pod_monitor(namespace: str) -> dict[str, Any]:
    relabel = [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": NODE_LABEL}]
    job = {"targetLabel": "job", "replacement": "trainwright"}  # what the rules ask for
    endpoint = {"port": "metrics", "interval": "15s", "honorLabels": True, "relabelings": [*relabel, job]}
    spec = {"selector": {"matchLabels": LABELS}, "podMetricsEndpoints": [endpoint]}
    metadata = _metadata(namespace, NAME)
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": metadata, "spec": spec}


def _rules(namespace: str) -> dict[str, Any]:
    import yaml

    groups = [group for text in rule_files().values() for group in yaml.safe_load(text)["groups"]]
    metadata = _metadata(namespace, "trainwright-rules")
    return {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata,
        "spec": {"groups": groups},
    }  # fmt: skip


def _dashboards(namespace: str) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(namespace, f"trainwright-dashboard-{name.split('.')[0]}", grafana_dashboard="1"),
            "data": {f"trainwright-{name}": text},
        }
        for name, text in dashboard_files().items()
    ]
