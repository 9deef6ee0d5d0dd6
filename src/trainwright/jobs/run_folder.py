"""Where a cluster keeps run folders: one rule for plan, submit and report."""

from __future__ import annotations

from trainwright.spec.model import Spec

SHARED = ("lustre", "efs", "openzfs", "ebs", "folder")  # seen by every node; NVMe disks are not
FOLDER = "trainwright/runs"


def shared_mounts(spec: Spec) -> list[str]:
    """The folders that every node of the spec's cluster sees, the first one first."""
    return [item.mount for item in spec.storage if item.kind in SHARED]


def run_root(spec: Spec) -> str:
    """The folder that the spec names, or one on its first shared file system; empty where there is neither."""
    if spec.runs:
        return spec.runs.rstrip("/")
    if spec.platform == "local":  # the nodes are this machine, and see its own folder of runs
        return ""
    mounts = shared_mounts(spec)
    return f"{mounts[0].rstrip('/')}/{FOLDER}" if mounts else ""


def plan_runs(spec: Spec) -> str:
    """The same for the job scripts of a plan; ParallelCluster's head node shares /home where there is no other
    storage; HyperPod's does not, and `check` reports it (SPC004)."""
    return run_root(spec) or f"/home/{FOLDER}"
