"""Before `up`: linked buckets, and whether the account may have the file systems that the plan adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainwright.aws.cloudformation import CLUSTER_TAG
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account, aws_errors
from trainwright.platforms.apply.answers import Answer
from trainwright.spec.model import Spec

if TYPE_CHECKING:
    from trainwright.platforms.plan.tree import ClusterPlan

# How Service Quotas names FSx's limits (FSx for Lustre user guide, quotas): by kind of file system.
QUOTAS = {
    "PERSISTENT_2": "Lustre Persistent 2",
    "PERSISTENT_1": "Lustre Persistent 1",
    "SCRATCH_2": "Lustre Scratch",
    "SCRATCH_1": "Lustre Scratch",
    "OPENZFS": "OpenZFS",
}


def buckets(account: Account, spec: Spec) -> Iterator[Answer]:
    api = BucketApi(account)
    for item in spec.storage:
        if item.bucket is not None:
            name = item.bucket.removeprefix("s3://").split("/")[0]
            there = api.exists(name)
            words = f"{item.bucket} for {item.mount}" + ("" if there else " does not exist")
            yield Answer("bucket", "pass" if there else "fail", words)


def file_system_quotas(account: Account, plan: ClusterPlan) -> Iterator[Answer]:
    """Whether what the account has and what the plan adds stay within FSx's quotas."""
    added = _planned(plan)
    if not added:
        return
    with aws_errors("quotas of fsx"):
        pages = account.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="fsx")
        limits = {row["QuotaName"]: float(row["Value"]) for page in pages for row in page["Quotas"]}
    with aws_errors("file systems"):
        rows = [
            r for p in account.client("fsx").get_paginator("describe_file_systems").paginate() for r in p["FileSystems"]
        ]
    for kind, sizes in added.items():
        there = [row["StorageCapacity"] for row in rows if _kind(row) == kind and not _ours(row, plan.spec.name)]
        yield from _held(kind, limits, there, sizes)


def _held(kind: str, limits: dict[str, float], there: list[int], added: list[int]) -> Iterator[Answer]:
    named = {name: value for name, value in limits.items() if name.startswith(kind)}
    counts = [value for name, value in named.items() if name.endswith("file systems")]
    capacities = [value for name, value in named.items() if name.endswith("storage capacity")]
    if not counts and not capacities:
        yield Answer("file systems", "skip", f"Service Quotas lists no limit of {kind} file systems")
    for limit in counts:
        total = len(there) + len(added)
        words = f"{kind}: {limit:,.0f} file systems allowed, {total} with this cluster"
        yield _within(words, total <= limit)
    for limit in capacities:
        gib = sum(there) + sum(added)
        words = f"{kind}: {limit:,.0f} GiB allowed, {gib:,} with this cluster"
        yield _within(words, gib <= limit)


def _within(words: str, enough: bool) -> Answer:
    return Answer("file systems", "pass" if enough else "fail", words if enough else f"{words}; ask AWS for more")


def _planned(plan: ClusterPlan) -> dict[str, list[int]]:
    """Kind -> GiB of each file system that the plan's stacks have."""
    sizes: dict[str, list[int]] = {}
    for stack in plan.stacks:
        if stack.template in ("lustre", "openzfs"):
            kind = QUOTAS["OPENZFS" if stack.template == "openzfs" else stack.parameters["DeploymentType"]]
            sizes.setdefault(kind, []).append(int(stack.parameters["Capacity"]))
    return sizes


def _kind(row: dict[str, Any]) -> str:
    if row["FileSystemType"] == "LUSTRE":
        return QUOTAS.get(row.get("LustreConfiguration", {}).get("DeploymentType", "SCRATCH_1"), "")
    return QUOTAS.get(row["FileSystemType"], "")


def _ours(row: dict[str, Any], cluster: str) -> bool:
    """One of this cluster's own, which the plan counts already."""
    return {"Key": CLUSTER_TAG, "Value": cluster} in row.get("Tags", [])
