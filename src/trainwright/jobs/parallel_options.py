"""How the ranks of our trainer's plan work together: options of the trainer that have no key of their own in a job,
refused here as the trainer would refuse them when its ranks start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.train.config import TrainConfig
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.pipeline_schedule import schedule_conflict
from trainwright.train.parallel.plan import CONTEXTS, ParallelPlan

if TYPE_CHECKING:
    from trainwright.jobs.training import TrainingResolver

PLAN = "JOB002"


def context(training: TrainingResolver, plan: ParallelPlan, shape: ModelShape | None) -> str:
    """How context ranks meet each other's keys."""
    kind = str(training.option("context") or CONTEXTS[0])
    problem = plan.context_problem(kind, shape) if shape is not None else ""
    if problem:
        training.outer.refuse(PLAN, place(training, "context"), what=problem, fix="`--context ring`, or gather")
    return kind


def pipeline_schedule(training: TrainingResolver, plan: ParallelPlan, recompute: str | None) -> str:
    """The schedule of a pipeline."""
    kind = str(training.option("pipeline_schedule") or TrainConfig().pipeline_schedule)
    conflict = schedule_conflict(kind, plan, bool(training.option("compile")), recompute or "none")
    if conflict:
        fix = "leave `recompute` and --compile out, or --pipeline-schedule 1f1b"
        training.outer.refuse(PLAN, place(training, "pipeline_schedule"), what=conflict, fix=fix)
    return kind


def place(training: TrainingResolver, option: str) -> str:
    """The key of a job that holds an option."""
    return "args" if option in training.arguments.values else "recipe"
