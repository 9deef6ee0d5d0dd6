"""What one rank runs: our trainer, another's, or a script of the user's."""

from __future__ import annotations

from pathlib import Path

from trainwright.recipes.arguments import train_options
from trainwright.recipes.foreign import foreign_command, foreign_of
from trainwright.spec.model import Job, Spec


def command_of(spec: Spec, job: Job, ranks: int, python: str, code: Path) -> tuple[str, ...]:
    """The command line of a rank; the launcher puts its rank and the meeting point into the environment."""
    if job.script:
        return (python, str(code / Path(job.script).name), *job.args)
    queue = spec.queue(job.queue) if job.queue else spec.queues[0]
    instance = queue.instance if queue is not None else None
    if foreign_of(job):
        return foreign_command(job, ranks, instance)
    return (python, "-m", "trainwright.train", *train_options(job, ranks, instance))
