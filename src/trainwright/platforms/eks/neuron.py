"""The Neuron device plugin, as objects of the plan: it offers aws.amazon.com/neuron to pods on Trainium nodes. eksctl
would install one of its own, which a cluster made without eksctl lacks."""

from __future__ import annotations

from typing import Any

from trainwright.platforms.setting import Setting

Data = dict[str, Any]
NAME, NAMESPACE = "neuron-device-plugin", "kube-system"
IMAGE = "public.ecr.aws/neuron/neuron-device-plugin:2.23.30.0"  # platform notes 2.3, the version that eksctl has
SOCKETS = "/var/lib/kubelet/device-plugins"


def neuron_objects(setting: Setting) -> list[Data]:
    """The plugin's account, its rights and its pod on every Neuron node; nothing where no queue has such nodes."""
    machines = [setting.queue_instance(queue) for queue in setting.spec.queues]
    types = sorted({machine.name for machine in machines if machine.is_neuron})
    if not types:
        return []
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "update"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch", "update"]},
    ]
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": NAME},
            "subjects": [account],
        },
        _daemon_set(types),
    ]


def _daemon_set(types: list[str]) -> Data:
    labels = {"app.kubernetes.io/name": NAME}
    here = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}
    container = {
        "name": NAME,
        "image": IMAGE,
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "sockets", "mountPath": SOCKETS}, {"name": "run", "mountPath": "/run"}],
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
            }
        },
        "containers": [container],
        "volumes": [
            {"name": "sockets", "hostPath": {"path": SOCKETS}},
            {"name": "run", "hostPath": {"path": "/run"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
