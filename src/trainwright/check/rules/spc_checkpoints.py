"""SPC: jobs that would load each other's checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath

from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule


@rule("SPC016", "warning")
def a_checkpoint_folder_belongs_to_one_job(file: File) -> Iterator[Problem]:
    """Two jobs must not keep their checkpoints in one folder.

    Compared are `checkpoint: {to: …}` of the jobs of a spec and of their recipes, as they come out for each job.

    Why: every trainer loads the newest checkpoint that it finds in its folder. The second job to start goes on from
    the first one's weights, stops at shapes that do not fit, or ends at once: step 1,000 of 1,000 is there.

    Fix: a folder for each: `checkpoint: {to: /fsx/checkpoints/JOB}`, or leave `to` out: each run has its own folder.

    Source: Megatron-LM's `--load`, torchtitan's `checkpoint.folder`, the Trainer's `output_dir`, our own trainer: all
    resume from what lies there.

    When to ignore: when the second job is meant to continue the first and never runs beside it.
    """
    for spec in file.specs:
        first: dict[str, str] = {}
        for index, resolution in enumerate(spec.jobs):
            job = resolution.job
            checkpoint = job.training.checkpoint if job is not None and job.training is not None else None
            if job is None or checkpoint is None or checkpoint.to is None:
                continue
            folder = normpath(checkpoint.to)
            owner = first.setdefault(folder, job.name)
            if owner != job.name:
                stated = spec.loaded.node.get("jobs", index, "checkpoint", "to") is not None
                place = ("checkpoint", "to") if stated else ("recipe",)
                yield problem(
                    spec.loaded.span("jobs", index, *place),
                    f"jobs {owner!r} and {job.name!r} keep their checkpoints in {checkpoint.to}: the second loads the "
                    "first one's",
                    f"`checkpoint: {{to: {folder}/{job.name}}}`",
                )
