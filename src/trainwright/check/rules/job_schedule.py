"""JOB: the learning rate's schedule against the length of the run."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.trainers import (
    FAIRSEQ,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    NEMO,
    SPEC,
    TORCHTITAN,
    is_trial,
    trainer_of,
)
from trainwright.check.model import File, Job, known
from trainwright.check.registry import Problem, problem, rule

_TRIAL = 1000  # steps
_FEW = 4  # times as long as the run, a decay still lowers the learning rate
_WARMS_UP = (MEGATRON, MEGATRON_DEEPSPEED, NEMO, FAIRSEQ, SPEC, "Hugging Face", "LLaMA-Factory", "llm-foundry")


@rule("JOB005", "error")
def schedule_fits_the_run(file: File) -> Iterator[Problem]:
    """Warm-up and decay must fit the length of the run.

    A warm-up longer than the run never reaches the peak learning rate (torchtitan shortens it, and is not reported).
    A decay at least four times as long as the run (a warning) hardly lowers it. Runs of up to 1,000 steps, and those
    that call themselves benchmarks, may be trials of a longer one (a note), and so may options of the same names of a
    program that is not known.

    Why: nothing fails; the model is just worse, and nobody sees the reason. With a warm-up of 24,000 steps in a run
    of 500, as in a published launcher, the learning rate ends at 2 % of its maximum.

    Fix: warm up for a few per cent of the steps; let the decay end with the run.

    Source: a RoBERTa launcher warms up for 24,000 of 500 updates; a Llama 2 launcher decays over 320,000 of 3,500
    (ParallelCluster-Fairseq-RoBERTa-P3; awsome-distributed-ai, DeepSpeed).

    When to ignore: the run is a short benchmark of a longer schedule.
    """
    yield from once(p for job in file.jobs for p in _schedule(job))


def _schedule(job: Job) -> Iterator[Problem]:
    steps, warmup, decay = known(job.steps), known(job.warmup), known(job.decay)
    unit = "samples" if "unit" in job.extra else "steps"
    if job.launch is not None and {"exit_interval", "exit_duration_in_mins"} & job.launch.options.keys():
        return  # a part of a longer run, or a test of something else
    short = steps and unit == "steps" and steps <= _TRIAL
    trial: Level | None = "info" if job.scheduler != "spec" and (short or is_trial(job)) else None
    if job.warmup is not None and steps and warmup and warmup > steps and _warms_up(job):
        stops = trainer_of(job) in (MEGATRON, MEGATRON_DEEPSPEED) and (job.decay is None or (decay or 0) <= warmup)
        end = f"the learning rate reaches only {100 * steps / warmup:.0f} %"
        yield problem(
            job.warmup,
            f"a warm-up of {warmup:,} {unit} in a run of {steps:,}: {'Megatron-LM refuses it' if stops else end}",
            f"warm up for about {max(1, steps // 20):,}",
            level=trial or (None if trainer_of(job) in _WARMS_UP else "info"),
            why="Megatron-LM asserts that the warm-up is shorter than the decay, and stops." if stops else "",
        )
    if job.decay is not None and steps and decay and decay > 2 * steps and _decays(job):
        part = max(1, round(100 * steps / decay))
        yield problem(
            job.decay,
            f"the learning rate decays over {decay:,} {unit}, but the run ends after {steps:,}, {part} % of the decay",
            f"decay over {steps:,}",
            level=trial or ("warning" if decay >= _FEW * steps else "info"),
        )


def _warms_up(job: Job) -> bool:
    """torchtitan shortens the warm-up to the run; the constant schedule of Hugging Face has none."""
    constant = known(job.extra.get("schedule")) == "constant" and trainer_of(job) not in (MEGATRON, MEGATRON_DEEPSPEED)
    options = job.launch.options if job.launch is not None else {}
    shortened = trainer_of(job) == TORCHTITAN or "lr_scheduler.warmup_steps" in options
    return not constant and not shortened


def _decays(job: Job) -> bool:
    """Whether the schedule ends with the decay: fairseq reads the length for one of its schedules only."""
    schedule = known(job.extra.get("schedule"))
    if trainer_of(job) == FAIRSEQ:
        return schedule == "polynomial_decay"
    return schedule is None or schedule in ("linear", "cosine")
