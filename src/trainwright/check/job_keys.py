"""Keys of a Kubernetes Job that are one typing mistake from one that exists."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.registry import Problem, problem
from trainwright.errors import nearest
from trainwright.spec.source import Node

# batch/v1, JobSpec, of Kubernetes 1.34
_KEYS = (
    "parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy", "successPolicy", "backoffLimit",
    "backoffLimitPerIndex", "maxFailedIndexes", "selector", "manualSelector", "template", "ttlSecondsAfterFinished",
    "completionMode", "suspend", "podReplacementPolicy", "managedBy",
)  # fmt: skip


def unknown_job_keys(root: Node) -> Iterator[Problem]:
    """Near misses only: a newer version may have keys that are not listed here."""
    spec = root.get("spec")
    version = root.get("apiVersion")
    if spec is None or not spec.is_map or version is None or version.text != "batch/v1":
        return
    for key, _ in spec.items():
        near = nearest(key, _KEYS, 0.8) if key not in _KEYS else ""
        if near:
            yield problem(spec.key_span(key), f"a Job has no key {key}: kubectl refuses it", f"write {near}")
