"""IMG: a custom image against the cluster that uses it, with facts from AWS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import machines

if TYPE_CHECKING:
    from trainwright.check.facts import AwsFacts


@rule("IMG001", "error", needs="aws")
def custom_image_fits_the_cluster(file: File, aws: AwsFacts) -> Iterator[Problem]:
    """A custom image must match the cluster's region, architecture and ParallelCluster version.

    An image id is valid in one region only. Its architecture must be that of every instance type; and an image built by
    another version of ParallelCluster than the one that creates the cluster is refused.

    Why: creation fails, in the version's case only after ParallelCluster has waited 35 minutes (2,100 seconds) for
    the head node.

    Fix: build the image again with `pcluster build-image` in this region, with this version.

    Source: ParallelCluster, CustomAmiTagValidator and InstanceTypeBaseAMICompatibleValidator; ParallelCluster 3.16,
    NODE_BOOTSTRAP_TIMEOUT.

    When to ignore: the cluster is created with the image's ParallelCluster version.
    """
    from trainwright.catalog.versions import version_set

    for cluster in file.clusters:
        if cluster.image is None or not cluster.image.known or not cluster.image.value.startswith("ami-"):
            continue
        image = aws.image(cluster.image.value)
        if image is None:
            yield problem(
                cluster.image,
                f"image {cluster.image.value} does not exist in {aws.region}",
                f"copy or build it in {aws.region}",
            )
            continue
        expected = version_set().parallelcluster.text
        if cluster.platform == "parallelcluster" and image.parallelcluster not in ("", expected):
            yield problem(
                cluster.image,
                f"the image was built by ParallelCluster {image.parallelcluster}; the cluster is created by {expected}",
                f"build it again with {expected}",
            )
        for queue in cluster.queues:
            for value, type_ in machines(queue):
                if type_.arch != image.arch:
                    yield problem(
                        value,
                        f"{type_.name} is {type_.arch}, the image {image.arch}",
                        "use an image of that architecture",
                    )
