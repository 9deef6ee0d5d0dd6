"""The way to a cluster's API: a kubeconfig of our own for each cluster, as `aws eks update-kubeconfig` would write it,
but without the AWS command line. The user's own is touched only on request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from trainwright.aws.eks import EksCluster
from trainwright.files import write_text
from trainwright.schedulers.kubernetes.own_config import context_of, own_kubeconfig


def keep(cluster: EksCluster, region: str) -> Path:
    """Write the kubeconfig where our commands look for it; its path."""
    path = own_kubeconfig(context_of(cluster.name))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(path, yaml.safe_dump(entries(cluster, region), sort_keys=False))
    path.chmod(0o600)
    return path


def entries(cluster: EksCluster, region: str) -> dict[str, Any]:
    """A kubeconfig with this cluster alone. It holds no secret: each call signs a token with the user's credentials."""
    name = context_of(cluster.name)
    program = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": sys.executable,
        "args": ["-m", "trainwright.aws.eks_token", "--cluster", cluster.name, "--region", region],
        "interactiveMode": "Never",
    }
    server = {"server": cluster.endpoint, "certificate-authority-data": cluster.certificate}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": {"exec": program}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def merge(cluster: EksCluster, region: str, path: Path) -> None:
    """Add the cluster to a kubeconfig of the user's, in place of an earlier entry of the same name."""
    data: dict[str, Any] = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}
    new = entries(cluster, region)
    for part in ("clusters", "users", "contexts"):
        name = new[part][0]["name"]
        data[part] = [one for one in data.get(part) or [] if one.get("name") != name] + new[part]
    data = {"apiVersion": "v1", "kind": "Config", **data, "current-context": new["current-context"]}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(path, yaml.safe_dump(data, sort_keys=False))
    path.chmod(0o600)
