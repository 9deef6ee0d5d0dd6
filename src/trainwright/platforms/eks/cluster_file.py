"""From a spec to the file that eksctl takes (ClusterConfig), as data that carries its reasons."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.version_numbers import parse_version
from trainwright.catalog.versions import version_set
from trainwright.platforms.annotated import Why
from trainwright.platforms.containers import service_account
from trainwright.platforms.eks.karpenter import access_entry, karpenter_stack, pod_identity
from trainwright.platforms.eks.nodegroups import node_group, system_group
from trainwright.platforms.monitoring.kubernetes import pod_identity as monitoring_identity
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import Ids
from trainwright.spec.model import Spec

LOG_DAYS = 30
# What SageMaker documents; its standard support on EKS ends on 2026-12-02.
NEWEST_OF_HYPERPOD = parse_version("1.34")
ACCESS_FILE = "eksctl/access.yaml"


def kubernetes_version(spec: Spec) -> str:
    """The version of the control plane: the version set's, or the newest that HyperPod takes."""
    version = version_set("default").kubernetes
    return str(min(version, NEWEST_OF_HYPERPOD) if spec.platform == "hyperpod-eks" else version)


def cluster_file(setting: Setting, ids: Ids, control_plane: tuple[str, ...]) -> dict[str, Any]:
    """The whole ClusterConfig. `control_plane`: the private subnets of two zones that EKS asks for."""
    spec = setting.spec
    tags = _tags(spec)
    version = kubernetes_version(spec)
    return {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": spec.name, "region": spec.region, "version": Why(version, _WHY_VERSION), "tags": tags},
        "upgradePolicy": Why({"supportType": "STANDARD"}, "no paid extended support without a decision"),
        "accessConfig": _access(setting),
        "vpc": _vpc(setting, ids, control_plane),
        "iam": {"withOIDC": False, "podIdentityAssociations": _identities(setting)},
        "addonsConfig": {"autoApplyPodIdentityAssociations": True},
        "addons": addons(setting),
        "managedNodeGroups": [system_group(ids, tags), *_groups(setting, ids, tags, "managed")],
        **({"nodeGroups": own} if (own := _groups(setting, ids, tags, "self-managed")) else {}),
        "cloudWatch": {
            "clusterLogging": {"enableTypes": ["api", "authenticator", "scheduler"], "logRetentionInDays": LOG_DAYS}
        },
    }


def additions(setting: Setting) -> dict[str, dict[str, Any]]:
    """File of the plan -> what eksctl adds to a cluster that was made before the spec asked for it. One file each:
    eksctl makes everything that a file names, or refuses all of it for the one that is there."""
    spec = setting.spec
    head: dict[str, Any] = {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": spec.name, "region": spec.region, "tags": _tags(spec)},
    }
    files: dict[str, dict[str, Any]] = {}
    for one in _identities(setting):
        files[identity_file(one["serviceAccountName"])] = {**head, "iam": {"podIdentityAssociations": [one]}}
    if "accessEntries" in _access(setting):
        files[ACCESS_FILE] = {**head, "accessConfig": _access(setting)}
    return files


def identity_file(account: str) -> str:
    return f"eksctl/identity-{account}.yaml"


def _tags(spec: Spec) -> dict[str, str]:
    return {**spec.tags, "trainwright:cluster": spec.name}


def _access(setting: Setting) -> dict[str, Any]:
    karpenter = karpenter_stack(setting.spec)
    entries = {"accessEntries": [access_entry(karpenter)]} if karpenter else {}
    return {"authenticationMode": "API_AND_CONFIG_MAP", **entries}


_WHY_VERSION = "in standard support; node images and charts of this plan are of the same set"


def _groups(setting: Setting, ids: Ids, tags: dict[str, str], provisioner: str) -> list[dict[str, Any]]:
    return [node_group(setting, queue, ids, tags) for queue in setting.spec.queues if queue.provisioner == provisioner]


def _vpc(setting: Setting, ids: Ids, control_plane: tuple[str, ...]) -> dict[str, Any]:
    callers = setting.spec.kubernetes.api_from
    subnets = {f"private-{number}": {"id": subnet} for number, subnet in enumerate(control_plane, 1)}
    return {
        **({"id": ids.vpc} if ids.vpc else {}),
        "subnets": Why(
            {"private": subnets}, "the control plane needs two zones; nodes that train stay in the first one"
        ),
        "clusterEndpoints": Why(
            {"privateAccess": True, "publicAccess": True},
            "nodes reach the API inside the VPC; people reach it from outside, by their AWS identity",
        ),
        **({"publicAccessCIDRs": list(callers)} if callers else {}),
        **_shared_group(setting, ids),
    }


def _shared_group(setting: Setting, ids: Ids) -> dict[str, Any]:
    """Nodes of HyperPod have the network's group only, so the control plane has it too: they reach each other."""
    if setting.spec.platform != "hyperpod-eks" or ids.security_group is None:
        return {}
    return {"controlPlaneSecurityGroupIDs": [ids.security_group]}


def addons(setting: Setting) -> list[dict[str, Any]]:
    """EKS's own add-ons, in the versions that EKS recommends for this Kubernetes."""
    kinds = {item.kind for item in setting.spec.storage}
    csi = {"lustre": "aws-fsx-csi-driver", "openzfs": "aws-fsx-openzfs-csi-driver", "efs": "aws-efs-csi-driver"}
    base = ["vpc-cni", "coredns", "kube-proxy", "metrics-server", "eks-pod-identity-agent"]
    watch = Why("eks-node-monitoring-agent", "sees GPU and network faults; node repair replaces the node then")
    return [{"name": name} for name in (*base, watch, *(csi[kind] for kind in csi if kind in kinds))]


def _identities(setting: Setting) -> list[dict[str, Any]]:
    karpenter = karpenter_stack(setting.spec)
    metrics = monitoring_identity(setting.spec.monitoring)
    return [*_of_jobs(setting), *([metrics] if metrics else []), *([pod_identity(karpenter)] if karpenter else [])]


def _of_jobs(setting: Setting) -> list[dict[str, Any]]:
    """Pods of training jobs may read and write the buckets that the spec links, and nothing else."""
    spec = setting.spec
    buckets = sorted({item.bucket.removeprefix("s3://").partition("/")[0] for item in spec.storage if item.bucket})
    statements = [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            "Resource": [f"arn:aws:s3:::{bucket}/*" for bucket in buckets],
        },
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{bucket}" for bucket in buckets]},
    ]
    if not buckets:
        return []
    account = {
        "namespace": spec.kubernetes.namespace,
        "serviceAccountName": service_account(spec),
        "createServiceAccount": True,
        "permissionPolicy": {"Version": "2012-10-17", "Statement": statements},
    }
    return [account]


def header(spec_name: str, source: str) -> str:
    """The comment on top of the file."""
    return (
        f"Written by `trainwright plan` from {source}: edit that file, not this one.\n"
        "Values that start with stack-output: are outputs of this plan's stacks; deploy.sh beside this file puts them\n"
        f"in and runs eksctl create cluster -f cluster.yaml for {spec_name}, then installs the charts of charts.json."
    )
