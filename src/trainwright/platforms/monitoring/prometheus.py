"""The configuration of Prometheus: what it scrapes, found in the way of each platform, and where alerts go."""

from __future__ import annotations

import re
from typing import Any

PORT = 9942  # of the node exporter, `trainwright.exporters`
INTERVAL = "15s"
NODE_LABEL = "node"
MANAGED = re.compile(r"https://aps-workspaces\.([a-z0-9-]+)\.amazonaws\.com(?:/workspaces/([\w-]+))?")


def prometheus_config(
    cluster: str,
    discovery: dict[str, Any],
    alertmanager: str,
    interval: str = INTERVAL,
    rules: str = "rules/*.yaml",
    remote_write: str | None = None,
) -> dict[str, Any]:
    """The whole file. Labels of the exporters win over those of the target: the head's exporter speaks of all nodes."""
    return {
        "global": {
            "scrape_interval": interval,
            "evaluation_interval": interval,
            "external_labels": {"cluster": cluster},
        },
        "rule_files": [rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "trainwright", "honor_labels": True, **discovery}],
        **({"remote_write": [_remote(remote_write)]} if remote_write else {}),
    }


def _remote(url: str) -> dict[str, Any]:
    """Amazon Managed Prometheus takes what is signed for its region, which its address names."""
    managed = MANAGED.match(url)
    return {"url": url, **({"sigv4": {"region": managed[1]}} if managed else {})}


def managed_workspace(url: str | None) -> str | None:
    """ARN of the workspace of Amazon Managed Prometheus that an address is of; None for every other address."""
    managed = MANAGED.match(url or "")
    return f"arn:aws:aps:{managed[1]}:*:workspace/{managed[2] or '*'}" if managed else None


def from_files(path: str, refresh: str = "30s") -> dict[str, Any]:
    """Targets from a file that something else keeps: a local cluster, or the nodes that Slurm says are up."""
    return {"file_sd_configs": [{"files": [path], "refresh_interval": refresh}]}


def from_ec2(region: str, cluster: str, tag: str = "trainwright:cluster", port: int = PORT) -> dict[str, Any]:
    """Running instances with the cluster's tag, by their private addresses; for a Prometheus outside the cluster."""
    filters = [{"name": f"tag:{tag}", "values": [cluster]}, {"name": "instance-state-name", "values": ["running"]}]
    relabel = [{"source_labels": ["__meta_ec2_tag_Name"], "target_label": NODE_LABEL}]
    return {
        "ec2_sd_configs": [{"region": region, "port": port, "filters": filters}],
        "relabel_configs": [
            *relabel,
            {"source_labels": ["__meta_ec2_instance_type"], "target_label": "instance_type"},
        ],
    }


def from_kubernetes(namespace: str, port: int = PORT) -> dict[str, Any]:
    """The pods of the exporter's DaemonSet, each under the name of its node."""
    label = "__meta_kubernetes_pod_label_app_kubernetes_io_name"
    return {
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [
            {"source_labels": [label], "regex": "trainwright-exporter", "action": "keep"},
            {"source_labels": ["__meta_kubernetes_pod_ip"], "replacement": f"$1:{port}", "target_label": "__address__"},
            {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": NODE_LABEL},
        ],
    }


def target(address: str, node: str, **labels: str) -> dict[str, Any]:
    """One entry of a target file."""
    return {"targets": [address], "labels": {NODE_LABEL: node, **labels}}
