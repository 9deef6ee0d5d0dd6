"""EKS: a cluster as its API shows it, its node groups, and which service accounts have a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors


@dataclass(frozen=True)
class EksCluster:
    name: str
    status: str  # CREATING, ACTIVE, DELETING, FAILED, UPDATING, PENDING
    version: str
    endpoint: str = ""
    certificate: str = ""  # base64 of the authority's
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeGroup:
    name: str
    status: str  # CREATING, ACTIVE, UPDATING, DELETING, CREATE_FAILED, DELETE_FAILED, DEGRADED
    least: int
    most: int
    instance: str
    issues: tuple[str, ...] = ()
    desired: int = 0  # nodes that it should have now


@dataclass(frozen=True)
class EksApi:
    account: Account

    def cluster(self, name: str) -> EksCluster | None:
        try:
            with aws_errors(f"EKS cluster {name}"):
                row = self._client.describe_cluster(name=name)["cluster"]
        except AwsRefused as error:
            if error.code == "ResourceNotFoundException":
                return None
            raise
        certificate = (row.get("certificateAuthority") or {}).get("data", "")
        return EksCluster(
            row["name"], row["status"], row.get("version", ""), row.get("endpoint", ""), certificate,
            dict(row.get("tags") or {}),
        )  # fmt: skip

    def node_groups(self, cluster: str) -> list[NodeGroup]:
        try:
            with aws_errors(f"EKS cluster {cluster}"):
                pages = self._client.get_paginator("list_nodegroups").paginate(clusterName=cluster)
                names = [name for page in pages for name in page["nodegroups"]]
        except AwsRefused as error:
            if error.code == "ResourceNotFoundException":
                return []
            raise
        return [group for name in names if (group := self._group(cluster, name)) is not None]

    def _group(self, cluster: str, name: str) -> NodeGroup | None:
        try:
            with aws_errors(f"node group {name}"):
                row = self._client.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        except AwsRefused as error:
            if error.code == "ResourceNotFoundException":
                return None
            raise
        size = row.get("scalingConfig") or {}
        issues = tuple(
            f"{one.get('code')}: {one.get('message')}" for one in (row.get("health") or {}).get("issues", ())
        )
        kinds = row.get("instanceTypes") or [""]
        return NodeGroup(
            name, row["status"], size.get("minSize", 0), size.get("maxSize", 0), kinds[0], issues,
            size.get("desiredSize", 0),
        )  # fmt: skip

    def has_identity(self, cluster: str, namespace: str, account: str) -> bool:
        """Whether a service account has a role by pod identity."""
        with aws_errors(f"EKS cluster {cluster}"):
            rows = self._client.list_pod_identity_associations(
                clusterName=cluster, namespace=namespace, serviceAccount=account
            )["associations"]
        return bool(rows)

    def principals(self, cluster: str) -> set[str]:
        """The roles and users that have an access entry."""
        with aws_errors(f"EKS cluster {cluster}"):
            pages = self._client.get_paginator("list_access_entries").paginate(clusterName=cluster)
            return {str(name) for page in pages for name in page["accessEntries"]}

    @property
    def _client(self) -> Any:
        return self.account.client("eks")
