"""What a job needs on the cluster, looked for before it is queued: a missing file is told now, not after the wait."""

from __future__ import annotations

import re

from trainwright.errors import UserError
from trainwright.jobs.resolved import ResolvedJob
from trainwright.schedulers.base import Launch
from trainwright.schedulers.shell import Shell

MISSING = 'for path; do [ -e "$path" ] || echo "$path"; done'


def check_required(job: ResolvedJob, launch: Launch, shell: Shell, scheduler: str) -> None:
    """Files and plugins the job names, by one question to the machine that submits it."""
    wanted = required_paths(job, launch)
    if wanted:
        missing = shell.output(["sh", "-c", MISSING, "sh", *wanted.values()]).splitlines()
        for what, path in wanted.items():
            if path in missing:
                place = shell.host or "this machine"
                head = "; or is the head node elsewhere? --host user@head" if shell == Shell() else ""
                raise UserError(
                    f"{what} {path} does not exist on {place}", where=f"job {job.name}",
                    fix=f"make it, or name another{head}",
                )  # fmt: skip
    if launch.container and scheduler == "slurm" and "--container-image" not in shell.run(["srun", "--help"]).out:
        raise UserError(
            f"job {job.name!r} runs in a container, and this Slurm has no pyxis plugin (`srun --container-image`)",
            fix="install enroot and pyxis on the cluster (software: {containers: enroot}), or leave `container` out",
        )


def required_paths(job: ResolvedJob, launch: Launch) -> dict[str, str]:
    """What has to be there, by what it is; only whole paths, since others mean something else elsewhere."""
    paths = {
        "the virtual environment": f"{launch.venv}/bin/activate" if launch.venv else "",
        "the container": launch.container,
        "the data": job.training.data if job.training else "",
        **{f"the secret file of {secret.name}": secret.file for secret in launch.secret_env},
        **{f"the mount {mount}": mount.split(":")[0] for mount in job.job.mounts},
    }
    return {what: path for what, path in paths.items() if re.fullmatch(r"/[^\s:]*", path)}
