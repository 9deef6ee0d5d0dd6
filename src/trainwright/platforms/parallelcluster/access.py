"""What nodes may do in the account: Session Manager, pulling containers, and the buckets the spec names, no more."""

from __future__ import annotations

from typing import Any

from trainwright.platforms.annotated import Why
from trainwright.platforms.setting import Setting
from trainwright.spec.model import Script

SESSION_MANAGER = "AmazonSSMManagedInstanceCore"
CONTAINER_REGISTRY = "AmazonEC2ContainerRegistryReadOnly"
REMOTE_WRITE = "AmazonPrometheusRemoteWriteAccess"
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}


def node_iam(setting: Setting, script_bucket: str | None, own: tuple[Script, ...]) -> dict[str, Any]:
    """The Iam section of a head node or a queue. `own` are the user's boot scripts; those on S3 must be readable."""
    shared = f"arn:{partition_of(setting.spec.region or '')}:iam::aws:policy"
    policies: list[Any] = [
        Why({"Policy": f"{shared}/{SESSION_MANAGER}"}, "a shell without an open port: Session Manager")
    ]
    if setting.spec.software.containers != "none":
        policies.append(
            Why({"Policy": f"{shared}/{CONTAINER_REGISTRY}"}, "pull containers from the account's registry")
        )
    if setting.spec.monitoring and setting.spec.monitoring.remote_write:
        policies.append(Why({"Policy": f"{shared}/{REMOTE_WRITE}"}, "write metrics to Amazon Managed Prometheus"))
    access: list[Any] = []
    if script_bucket is not None:
        folder = {"BucketName": script_bucket, "KeyName": f"trainwright/{setting.spec.name}/*"}
        access.append(Why({**folder, "EnableWriteAccess": False}, "fetch the boot scripts of this plan, nothing else"))
    for script in own:
        if script.source.startswith("s3://"):
            bucket, _, key = script.source.removeprefix("s3://").partition("/")
            access.append({"BucketName": bucket, "KeyName": key, "EnableWriteAccess": False})
    for bucket, write in job_buckets(setting).items():
        access.append({"BucketName": bucket, "EnableWriteAccess": write})
    return {"AdditionalIamPolicies": policies, **({"S3Access": access} if access else {})}


def partition_of(region: str) -> str:
    """The part of AWS that a region belongs to, as ARNs name it."""
    return next((name for start, name in _PARTITIONS.items() if region.startswith(start)), "aws")


def job_buckets(setting: Setting) -> dict[str, bool]:
    """Buckets jobs name by address, and whether they write there. One linked to Lustre needs none: FSx copies."""
    buckets: dict[str, bool] = {}
    for job in setting.spec.jobs:
        targets = [(job.data, False), (job.checkpoint.to if job.checkpoint else None, True)]
        for address, write in targets:
            if address is not None and address.startswith("s3://"):
                bucket = address.removeprefix("s3://").split("/")[0]
                buckets[bucket] = buckets.get(bucket, False) or write
    return buckets
