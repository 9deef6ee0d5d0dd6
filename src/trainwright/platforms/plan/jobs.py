"""The jobs of a plan: what `trainwright submit` would hand to the scheduler, so that a plan shows jobs too."""

from __future__ import annotations

from pathlib import Path

from trainwright.jobs.resolved import ResolvedJob
from trainwright.jobs.run_folder import FOLDER, plan_runs
from trainwright.platforms.base import platform_named
from trainwright.schedulers.launch import Place, launch_of
from trainwright.schedulers.slurm import SlurmScheduler


def job_scripts(jobs: tuple[ResolvedJob, ...], code: str = "") -> dict[str, str]:
    """File of the plan -> sbatch script, one per job. A real run's folder also has the time in its name, and brings its
    code; here it is the plan's own, which is on the cluster in the folder `code`."""
    scripts: dict[str, str] = {}
    for job in jobs:
        scheduler = SlurmScheduler(cluster=job.spec.name, python="python3", hyperpod=job.spec.platform == "hyperpod")
        folder = Path(plan_runs(job.spec)) / job.name
        place = Place(folder, "python3", python_path="" if job.runtime.container else code)
        scripts[f"jobs/{job.name}.sbatch"] = scheduler.render(launch_of(job, place)).text
    return scripts


def container_jobs(jobs: tuple[ResolvedJob, ...]) -> dict[str, str]:
    """File of the plan -> manifest or job definition, for platforms that run images."""
    files: dict[str, str] = {}
    for job in jobs:
        scheduler = platform_named(job.spec.platform).preview(job.spec, job.job)
        script = scheduler.render(launch_of(job, Place(Path(job.run_root or FOLDER) / job.name, "python3")))
        files[f"jobs/{job.name}{Path(script.filename).suffix}"] = script.text
    return files
