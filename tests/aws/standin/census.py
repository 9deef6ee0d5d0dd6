"""What there is in a region, counted by kind and by the name that matters, without the ids that differ from run to run:
two runs that end the same have the same census, and what was made twice or left over shows."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_RANDOM = re.compile(r"[0-9a-f]{12,}$|(?<=-)[0-9a-f]{17}|(?<=-)[0-9a-f]{9,}(?=$| in=)")


def census(world: Any, region: str) -> dict[str, list[str]]:
    """Kind -> what there is of it, as sorted names with their number."""
    here = world.region(region)
    ec2, s3 = world.client("ec2", region), world.client("s3", region)
    vpcs = {v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"]}

    def inside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row.get("VpcId") in vpcs]

    groups = inside(ec2.describe_security_groups()["SecurityGroups"])
    kinds: dict[str, list[str]] = {
        "stack": [f"{s.name} {s.status}" for s in here.stacks.values() if s.deleted is None],
        "vpc": [_tag(v) for v in ec2.describe_vpcs()["Vpcs"] if v["VpcId"] in vpcs],
        "subnet": [_tag(row) for row in inside(ec2.describe_subnets()["Subnets"])],
        "gateway": [_tag(row) for row in ec2.describe_internet_gateways()["InternetGateways"] if row["Tags"]],
        "nat": [_tag(r) for r in ec2.describe_nat_gateways()["NatGateways"] if r["State"] == "available"],
        "address": [_tag(row) for row in ec2.describe_addresses()["Addresses"]],
        "routes": [_tag(row) for row in inside(ec2.describe_route_tables()["RouteTables"])],
        "endpoint": [row["ServiceName"] for row in inside(ec2.describe_vpc_endpoints()["VpcEndpoints"])],
        "group": [f"{_tag(g)} in={_rules(g['IpPermissions'])} out={_rules(g['IpPermissionsEgress'])}" for g in groups],
        "interface": [row["Description"] for row in inside(ec2.describe_network_interfaces()["NetworkInterfaces"])],
        "key": [row["KeyName"] for row in ec2.describe_key_pairs()["KeyPairs"]],
        "instance": [
            f"{i['InstanceType']} {i['State']['Name']}"
            for r in ec2.describe_instances()["Reservations"]
            for i in r["Instances"]
            if i["State"]["Name"] != "terminated"
        ],
        "file system": [
            f"{s.kind} {s.fields['StorageCapacity']} {here.fsx.state(s)}" for s in here.fsx.systems.values()
        ],
        "link": [f"{a.fields['DataRepositoryPath']} {here.fsx.state(a)}" for a in here.fsx.associations.values()],
        "log group": [g["logGroupName"] for g in world.client("logs", region).describe_log_groups()["logGroups"]],
        "role": [r["RoleName"] for r in world.client("iam", region).list_roles()["Roles"]],
        "bucket": [b["Name"] for b in s3.list_buckets()["Buckets"]],
        "file": [
            re.sub(r"/[0-9a-z-]{12,}/", "/", row["Key"])
            for bucket in s3.list_buckets()["Buckets"]
            for row in s3.list_objects_v2(Bucket=bucket["Name"]).get("Contents", [])
        ],
        "launch template": [f"of {data.get('InstanceType', 'a queue')}" for data in here.launch_data.values()],
        "placement group": [re.sub(r"-[0-9a-f]+$", "", name) for name in world.placement_groups],
        "hyperpod node": [f"{c.name} {n.group} {n.type}" for c in here.hyperpod.values() for n in c.nodes],
        "compute environment": [f"{p.state} {p.status}" for p in here.batch.environments.values()],
        "job queue": [f"{p.name} {p.state} {p.status}" for p in here.batch.queues.values()],
        "eks cluster": [
            f"{c.name} {c.version} {','.join(sorted(c.addons))} {sorted(c.identities)}"
            for c in here.eks.clusters.values()
        ],
        "node group": [
            f"{c.name}/{g.name} {g.least}-{g.most} {len(g.nodes)}"
            for c in here.eks.clusters.values()
            for g in c.groups.values()
        ],
        "release": [f"{r['chart']} {r['status']}" for c in here.eks.clusters.values() for r in c.releases.values()],
        "object": [" ".join(key) for c in here.eks.clusters.values() for key in c.objects],
        "volume": [f"{v['Size']}" for v in ec2.describe_volumes()["Volumes"] if v["State"] == "available"],
        "change set": [c for s in here.stacks.values() if s.deleted is None for c in s.change_sets],
    }
    return {kind: _counted(names) for kind, names in kinds.items()}


def _counted(names: list[str]) -> list[str]:
    plain = Counter(_RANDOM.sub("*", name) for name in names)
    return [f"{name} x{count}" for name, count in sorted(plain.items())]


def _tag(row: dict[str, Any]) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
    return tags.get("Name", row.get("GroupName", "unnamed"))


def _rules(rows: list[dict[str, Any]]) -> int:
    return sum(len(row.get("UserIdGroupPairs", [])) + len(row.get("IpRanges", [])) for row in rows)
