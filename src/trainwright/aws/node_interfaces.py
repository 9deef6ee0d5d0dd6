"""Network interfaces that the CNI of an EKS node left when the node went: nobody else removes them, they cost addresses
and hold security groups and subnets."""

from __future__ import annotations

from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors

CLUSTER = "cluster.k8s.amazonaws.com/name"
NODE = "node.k8s.amazonaws.com/instance_id"
GONE = ("terminated", "shutting-down")


def drop_forgotten(account: Account, cluster: str) -> int:
    """Delete those of nodes that are gone; how many of the cluster's are left or were there."""
    ec2 = account.client("ec2")
    with aws_errors("network interfaces"):
        only = [{"Name": f"tag:{CLUSTER}", "Values": [cluster]}]
        rows = ec2.describe_network_interfaces(Filters=only)["NetworkInterfaces"]
    free = [row for row in rows if row["Status"] == "available"]
    live = _live(ec2, sorted({_node(row) for row in free if _node(row)}))
    forgotten = [row["NetworkInterfaceId"] for row in free if _node(row) not in live]
    for id in forgotten:
        try:
            with aws_errors(f"network interface {id}"):
                ec2.delete_network_interface(NetworkInterfaceId=id)
        except AwsRefused as error:
            if error.code != "InvalidNetworkInterfaceID.NotFound":  # somebody else was faster
                raise
    return len(rows)


def _node(row: dict[str, Any]) -> str:
    return next((tag["Value"] for tag in row.get("TagSet", []) if tag["Key"] == NODE), "")


def _live(ec2: Any, ids: list[str]) -> set[str]:
    if not ids:
        return set()
    with aws_errors("instances"):
        # By a filter: an id that EC2 has forgotten is no error then.
        groups = ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": ids}])["Reservations"]
    machines = [one for group in groups for one in group["Instances"]]
    return {one["InstanceId"] for one in machines if one["State"]["Name"] not in GONE}
