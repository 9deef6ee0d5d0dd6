"""Where the Python environment of a cluster's jobs is: made by the head node on shared storage (`managed`), a folder
that the spec names, or none. One rule for plan and submit."""

from __future__ import annotations

from trainwright.catalog.instances import find_instance
from trainwright.catalog.runtime import runs_on, runtime_pins
from trainwright.jobs.run_folder import shared_mounts
from trainwright.spec.model import Queue, Spec

MANAGED, NONE = "managed", "none"


def shared_root(spec: Spec) -> str:
    """The folder of ours on the cluster's first shared file system. ParallelCluster's head node always shares /home;
    HyperPod's shares nothing, and `check` reports a job without shared storage there (SPC004)."""
    mounts = shared_mounts(spec)
    return f"{mounts[0].rstrip('/') if mounts else '/home'}/trainwright"


def managed_runtime(spec: Spec) -> str:
    """The folder of the runtime that a plan of the spec ships; empty where it ships none."""
    if spec.platform not in ("parallelcluster", "hyperpod") or spec.software.runtime != MANAGED:
        return ""
    return f"{shared_root(spec)}/runtime/{runtime_pins().digest}"


def lacks_shared_folder(spec: Spec) -> bool:
    """Whether a job would find its run folder, code or Python environment on the controller's own disk only."""
    if spec.platform != "hyperpod" or shared_mounts(spec):
        return False
    return not spec.runs or bool(managed_runtime(spec))


def job_runtime(spec: Spec, queue: Queue) -> str:
    """The virtual environment that a job without a container runs in on a queue; empty: the node's own Python."""
    said = spec.software.runtime
    if said not in (None, MANAGED, NONE):
        return str(said)
    machine = find_instance(queue.instance or "")
    return managed_runtime(spec) if machine is not None and runs_on(machine) else ""
