"""IMG, the part that asks AWS: a custom image against the cluster that uses it."""

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
    """A custom image must be in the cluster's region, of its architecture, and built for its ParallelCluster.

    An image id means something in one region only. Its architecture must be that of every instance type; and an
    image built by another version of ParallelCluster than the one that creates the cluster is refused.

    Why: creation fails, in the version's case only after the head node has tried to start.

    Fix: build the image again with `pcluster build-image` in this region, with this
    version.

    Source: ParallelCluster, CustomAmiTagValidator and InstanceTypeBaseAMICompatibleValidator.
    """
    from trainwright.catalog.versions import version_set

    for cluster in file.clusters:
        if cluster.image is None or not cluster.image.known or not cluster.image.value.startswith("ami-"):
            continue
        found = aws.image(cluster.image.value)
        if found is None:
            yield problem(
                cluster.image,
                f"there is no image {cluster.image.value} in {aws.region}",
                f"copy or build it in {aws.region}",
            )
            continue
        expected = version_set().parallelcluster.text
        if cluster.platform == "parallelcluster" and found.parallelcluster not in ("", expected):
            yield problem(
                cluster.image,
                f"the image was built with ParallelCluster {found.parallelcluster}; clusters are made with {expected}",
                f"build it again with {expected}",
            )
        for queue in cluster.queues:
            for value, type_ in machines(queue):
                if type_.arch != found.arch:
                    yield problem(
                        value,
                        f"{type_.name} is {type_.arch}, the image {found.arch}",
                        "use an image of that architecture",
                    )
