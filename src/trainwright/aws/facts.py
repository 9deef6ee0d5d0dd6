"""Answers the questions of `check --aws` from one region of one account. Read-only; each resource is queried once."""

from __future__ import annotations

from typing import Any

from trainwright.aws.session import aws_errors, client
from trainwright.check.facts import FileSystem, Group, GroupRule, Image, KeyPair, Reservation, Subnet


class AwsFacts:
    """The implementation of `trainwright.check.facts.AwsFacts`."""

    def __init__(self, region: str | None = None, profile: str | None = None) -> None:
        self._ec2 = client("ec2", region, profile)
        self._fsx = client("fsx", region, profile)
        # One file may name a subnet in ten places; one query is enough.
        self._answers: dict[str, dict[str, Any] | None] = {}

    @property
    def region(self) -> str:
        return str(self._ec2.meta.region_name)

    def reservation(self, id: str) -> Reservation | None:
        row = self._one("describe_capacity_reservations", "CapacityReservations", CapacityReservationIds=[id])
        if row is None:
            return None
        return Reservation(
            id=row["CapacityReservationId"],
            instance=row["InstanceType"],
            zone=row.get("AvailabilityZone", ""),
            count=row["TotalInstanceCount"],
            is_block=row.get("ReservationType") == "capacity-block",
            state=row["State"],
            placement_group=row.get("PlacementGroupArn", "").rpartition("/")[2],
            zone_id=row.get("AvailabilityZoneId", ""),
        )

    def subnet(self, id: str) -> Subnet | None:
        row = self._one("describe_subnets", "Subnets", SubnetIds=[id])
        if row is None:
            return None
        return Subnet(
            id=row["SubnetId"],
            zone=row["AvailabilityZone"],
            free_addresses=row["AvailableIpAddressCount"],
            public_addresses=row["MapPublicIpOnLaunch"],
            zone_id=row.get("AvailabilityZoneId", ""),
        )

    def image(self, id: str) -> Image | None:
        row = self._one("describe_images", "Images", ImageIds=[id])
        if row is None:
            return None
        tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
        return Image(
            id=row["ImageId"],
            arch=row["Architecture"],
            parallelcluster=tags.get("parallelcluster:version", ""),
            os=tags.get("parallelcluster:os", ""),
        )

    def key_pair(self, name: str) -> KeyPair | None:
        row = self._one("describe_key_pairs", "KeyPairs", KeyNames=[name])
        return KeyPair(name=row["KeyName"], kind=row.get("KeyType", "rsa")) if row else None

    def security_group(self, id: str) -> Group | None:
        row = self._one("describe_security_groups", "SecurityGroups", GroupIds=[id])
        if row is None:
            return None
        return Group(
            id=row["GroupId"],
            ingress=tuple(_rule(r) for r in row.get("IpPermissions", [])),
            egress=tuple(_rule(r) for r in row.get("IpPermissionsEgress", [])),
        )

    def file_system(self, id: str) -> FileSystem | None:
        row = self._one("describe_file_systems", "FileSystems", self._fsx, FileSystemIds=[id])
        if row is None:
            return None
        cards = row.get("NetworkInterfaceIds", [])
        return FileSystem(row["FileSystemId"], row["FileSystemType"].lower(), self._groups_of(cards))

    def _groups_of(self, interfaces: list[str]) -> tuple[str, ...]:
        if not interfaces:
            return ()
        with aws_errors("ec2:DescribeNetworkInterfaces"):
            rows = self._ec2.describe_network_interfaces(NetworkInterfaceIds=interfaces)["NetworkInterfaces"]
        return tuple(sorted({group["GroupId"] for row in rows for group in row["Groups"]}))

    def _one(self, operation: str, key: str, service: Any = None, **asked: Any) -> dict[str, Any] | None:
        """The single resource with that id, or None if there is none."""
        question = f"{operation} {asked}"
        if question not in self._answers:
            self._answers[question] = self._ask(operation, key, service or self._ec2, asked)
        return self._answers[question]

    def _ask(self, operation: str, key: str, service: Any, asked: dict[str, Any]) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        with aws_errors(operation):
            try:
                rows = getattr(service, operation)(**asked)[key]
            except ClientError as error:
                if _is_missing(error.response.get("Error", {}).get("Code", "")):
                    return None
                raise
        return rows[0] if rows else None


def _is_missing(code: str) -> bool:
    return code.endswith((".NotFound", "NotFound", ".Malformed", ".Unavailable"))


def _rule(row: dict[str, Any]) -> GroupRule:
    ranges = [r["CidrIp"] for r in row.get("IpRanges", [])] + [r["CidrIpv6"] for r in row.get("Ipv6Ranges", [])]
    return GroupRule(
        protocol=str(row["IpProtocol"]),
        from_port=row.get("FromPort", 0),
        to_port=row.get("ToPort", 65535),
        groups=tuple(pair["GroupId"] for pair in row.get("UserIdGroupPairs", [])),
        ranges=tuple(ranges),
    )
