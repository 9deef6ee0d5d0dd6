"""The job scripts of a plan: what `trainwright submit` would hand to the scheduler, so that a plan shows jobs too."""

from __future__ import annotations

from pathlib import Path

from trainwright.schedulers.launch import Place, launch_job
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.model import Spec

SHARED = ("lustre", "efs", "openzfs", "ebs")


def job_scripts(spec: Spec) -> dict[str, str]:
    """File of the plan -> sbatch script, one a job. A real run's folder also has the time in its name."""
    scheduler = SlurmScheduler(cluster=spec.name, python="python3")
    shared = next((item.mount for item in spec.storage if item.kind in SHARED), "/home")
    found: dict[str, str] = {}
    for job in spec.jobs:
        place = Place(Path(shared) / "runs" / job.name, "python3")
        found[f"jobs/{job.name}.sbatch"] = scheduler.render(launch_job(spec, job, place)).text
    return found
