"""Before `up`: whether the machine image of the nodes is there. pcluster looks too, but only when the file systems are
made and paid for."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.aws.session import Account, aws_errors
from trainwright.catalog.instances import instance
from trainwright.catalog.versions import version_set
from trainwright.platforms.apply.answers import Answer
from trainwright.spec.model import Spec

# The system in the names of ParallelCluster's own images (its constants.py); it publishes none of the others.
SYSTEMS = {
    "alinux2023": "amzn2023-hvm",
    "ubuntu2204": "ubuntu-2204-lts-hvm",
    "ubuntu2404": "ubuntu-2404-lts-hvm",
    "rhel8": "rhel8-hvm",
    "rhel9": "rhel9-hvm",
}


def images(account: Account, spec: Spec) -> Iterator[Answer]:
    if spec.software.image.startswith("ami-"):
        yield _own(account, spec.software.image)
        return
    names = {str(queue.instance) for queue in spec.queues} | {str(spec.head.instance)}
    for arch in sorted({instance(name).arch for name in names}):
        yield _official(account, str(spec.software.os), arch)


def _own(account: Account, id: str) -> Answer:
    """An image of the user's; that it exists, its version and architecture are judged by rule IMG001."""
    with aws_errors(f"image {id}"):
        rows = account.client("ec2").describe_images(ImageIds=[id])["Images"]
    if not rows:
        return Answer("image", "fail", f"{id} does not exist in {account.region}")
    if rows[0].get("State") != "available":
        return Answer("image", "fail", f"{id} is {rows[0].get('State')}")
    tags = {tag["Key"]: tag["Value"] for tag in rows[0].get("Tags", [])}
    version = tags.get("parallelcluster:version")
    if version is None:
        wanted = version_set("default").parallelcluster
        return Answer("image", "warn", f"{id} does not say its ParallelCluster version; only one of {wanted} boots")
    return Answer("image", "pass", f"{id}, built for ParallelCluster {version}")


def _official(account: Account, system: str, arch: str) -> Answer:
    version = version_set("default").parallelcluster
    if system not in SYSTEMS:
        return Answer(
            "image", "fail", f"ParallelCluster publishes no image of {system}: name your own (`software.image`)"
        )
    name = f"aws-parallelcluster-{version}-{SYSTEMS[system]}-{arch}-*"
    filters = [{"Name": "name", "Values": [name]}, {"Name": "state", "Values": ["available"]}]
    with aws_errors("images of ParallelCluster"):
        rows = account.client("ec2").describe_images(Owners=["amazon"], Filters=filters)["Images"]
    if not rows:
        return Answer(
            "image", "fail", f"{account.region} has no image of ParallelCluster {version} for {system}, {arch}"
        )
    newest = max(rows, key=lambda row: str(row.get("CreationDate", "")))
    return Answer("image", "pass", f"{newest['ImageId']}: ParallelCluster {version}, {system}, {arch}")
