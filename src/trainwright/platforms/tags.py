"""The tags of a cluster, on its stacks and on the machines that those start."""

from __future__ import annotations

from trainwright.aws.cloudformation import CLUSTER_TAG, PLATFORM_TAG
from trainwright.spec.model import Spec

DEFAULT_PLATFORM = "parallelcluster"  # of stacks that name none


def cluster_tags(spec: Spec) -> dict[str, str]:
    """Those of the spec, and those by which `status` and `down` find the cluster again."""
    return {**spec.tags, CLUSTER_TAG: spec.name, **platform_tag(spec)}


def platform_tag(spec: Spec) -> dict[str, str]:
    return {} if spec.platform == DEFAULT_PLATFORM else {PLATFORM_TAG: spec.platform}
