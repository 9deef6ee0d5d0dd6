"""The head node of a ParallelCluster, found by the tags that ParallelCluster puts on instances, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.aws.session import aws_errors, client
from trainwright.errors import UserError

NAME_TAG, TYPE_TAG, ATTRIBUTES_TAG = (
    "parallelcluster:cluster-name",
    "parallelcluster:node-type",
    "parallelcluster:attributes",
)


@dataclass(frozen=True, slots=True)
class HeadNode:
    cluster: str
    region: str
    id: str
    os: str  # ubuntu2204, alinux2023 ...; empty where the tag is missing
    public: str = ""  # address; empty in a private subnet
    key: str = ""  # EC2 key pair it was started with


def find_head(cluster: str, region: str | None = None) -> HeadNode:
    """The running head node of a cluster."""
    ec2 = client("ec2", region)
    filters = {f"tag:{NAME_TAG}": cluster, f"tag:{TYPE_TAG}": "HeadNode"}
    wanted = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    with aws_errors("ec2:DescribeInstances"):
        pages = ec2.get_paginator("describe_instances").paginate(Filters=wanted)
        rows = [row for page in pages for group in page["Reservations"] for row in group["Instances"]]
    region = str(ec2.meta.region_name)
    up = [row for row in rows if row["State"]["Name"] == "running"]
    if not up:
        states = ", ".join(sorted({row["State"]["Name"] for row in rows} - {"terminated"}))
        raise UserError(
            f"cluster {cluster} has no running head node in {region}" + (f": it is {states}" if states else ""),
            fix="`trainwright up SPEC` makes one; another region: --region",
        )
    return _head(cluster, region, up[0])


def _head(cluster: str, region: str, row: dict[str, Any]) -> HeadNode:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
    return HeadNode(
        cluster=cluster,
        region=region,
        id=row["InstanceId"],
        os=tags.get(ATTRIBUTES_TAG, "").split(",")[0].strip(),
        public=row.get("PublicIpAddress", ""),
        key=row.get("KeyName", ""),
    )
