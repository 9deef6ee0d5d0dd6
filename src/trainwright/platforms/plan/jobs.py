"""The jobs of a plan: what `trainwright submit` would hand to the scheduler, so that a plan shows jobs too."""

from __future__ import annotations

from pathlib import Path

from trainwright.jobs.resolved import ResolvedJob
from trainwright.jobs.run_folder import FOLDER, plan_runs
from trainwright.platforms.base import platform_named
from trainwright.schedulers.base import Launch
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
        launch = launch_of(job, place)
        scripts[f"jobs/{job.name}.sbatch"] = scheduler.render(launch).text
        scripts |= _beside(job, launch)
    return scripts


def container_jobs(jobs: tuple[ResolvedJob, ...]) -> dict[str, str]:
    """File of the plan -> manifest or job definition, for platforms that run images."""
    files: dict[str, str] = {}
    for job in jobs:
        scheduler = platform_named(job.spec.platform).preview(job.spec, job.job)
        launch = launch_of(job, Place(Path(job.run_root or FOLDER) / job.name, "python3"))
        script = scheduler.render(launch)
        files[f"jobs/{job.name}{Path(script.filename).suffix}"] = script.text
        files |= _beside(job, launch)
    return files


def _beside(job: ResolvedJob, launch: Launch) -> dict[str, str]:
    """The configuration and programs of another framework, which `submit` puts into the folder of the run's code."""
    return {f"jobs/{job.name}/{Path(path).name}": text for path, text in launch.files}
