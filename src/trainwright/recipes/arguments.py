"""A job's recipe as the options of our trainer: what the job says goes over what the recipe says, the parallel plan is
completed for the number of ranks, and a batch in tokens becomes whole samples that the ranks can share."""

from __future__ import annotations

from itertools import pairwise

from trainwright.errors import UserError
from trainwright.recipes.load import recipe as find_recipe
from trainwright.recipes.model import Recipe, Spread
from trainwright.spec.model import Batch, Job, Parallel
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan


def recipe_of(job: Job) -> Recipe | None:
    """The recipe a job names; a job that names only a model has none."""
    return find_recipe(job.recipe) if job.recipe else None


def plan_of(job: Job, ranks: int, instance: str | None) -> ParallelPlan:
    """The job's parallel plan, completed: the axis that is left open takes the ranks that are left."""
    found = recipe_of(job)
    asked: Parallel = job.parallel or (found.spread(instance) if found else Spread())
    rest = asked.rest if isinstance(asked, Spread) else "replicate" if asked.shard else "shard"
    if asked.ep > 1:
        raise UserError(
            "our trainer has no expert parallelism", where=f"job {job.name}: parallel.ep", fix="leave it out"
        )
    fixed = asked.tp * asked.pp * asked.cp
    replicate, shard = asked.replicate or 1, asked.shard or 1
    open_axes = [axis for axis in ("replicate", "shard") if getattr(asked, axis) is None]
    taken = fixed * replicate * shard
    if open_axes and ranks % taken == 0:
        axis = rest if rest in open_axes else open_axes[0]
        replicate, shard = (ranks // taken, shard) if axis == "replicate" else (replicate, ranks // taken)
    plan = ParallelPlan(replicate, shard, asked.tp, asked.pp, asked.cp, 1, asked.virtual_stages)
    if plan.world != ranks:
        raise UserError(
            f"the plan {plan} needs {plan.world} ranks (or a multiple), and the job has {ranks}",
            where=f"job {job.name}",
            fix=f"nodes × processes must be a multiple of {fixed}; leave shard and replicate out to fill the rest",
        )
    return plan


def samples_of(batch: Batch, sequence: int, plan: ParallelPlan) -> int:
    """Samples of one step. A batch in tokens is a target: the nearest number of samples the data ranks can share."""
    share = plan.data * (batch.micro_batch or 1)
    if batch.sequences is not None:
        return batch.sequences
    if batch.tokens is None:
        return share
    return max(1, round(batch.tokens / sequence / share)) * share


def micro_of(job: Job, batch: Batch, samples: int, plan: ParallelPlan) -> int | None:
    """Samples a GPU works on at once: what the job asks for, or as much of the recipe's wish as a GPU's share allows
    (on more GPUs than the recipe was written for, the share is smaller)."""
    own, left = divmod(samples, plan.data)
    if batch.micro_batch is None or (not left and own % batch.micro_batch == 0):
        return batch.micro_batch
    if job.batch is None and not left:
        return max(size for size in range(1, batch.micro_batch + 1) if own % size == 0)
    share = plan.data * batch.micro_batch
    less, more = samples // share * share or share, (samples // share + 1) * share
    raise UserError(
        f"{samples} samples per step are not whole micro-batches of {batch.micro_batch} on {plan.data} data ranks",
        where=f"job {job.name}: batch",
        fix=f"take {less} or {more} samples, or another micro_batch",
    )


def recompute_of(job: Job) -> str:
    """What is computed again in the backward pass: the job's word, its recipe's, or the trainer's default."""
    found = recipe_of(job)
    return job.recompute or (found.recompute if found else "none")


def steps_of(job: Job) -> int | None:
    """Optimizer steps: an argument `--steps` for the trainer goes over the job's value, and that over the recipe's."""
    found = recipe_of(job)
    return _steps_argument(job.args) or job.steps or (found.steps if found else None)


def warmup_of(job: Job) -> int | None:
    """Warm-up steps. A recipe's warm-up that does not end within the job's steps is shortened in proportion: the
    recipe's author chose it for the recipe's own length."""
    if job.optimizer is not None and job.optimizer.warmup is not None:
        return job.optimizer.warmup
    found = recipe_of(job)
    if found is None:
        return None
    warmup, steps = found.optimizer.warmup, steps_of(job) or found.steps
    return warmup if warmup < steps else warmup * steps // found.steps


def _steps_argument(args: tuple[str, ...]) -> int | None:
    """The last `--steps N` or `--steps=N` among a trainer's arguments; what is no number is left to the trainer."""
    words = " ".join(args).replace("--steps=", "--steps ").split()
    values = [value for option, value in pairwise(words) if option == "--steps"]
    return int(values[-1]) if values and values[-1].isdecimal() else None


def train_options(job: Job, ranks: int, instance: str | None) -> list[str]:
    """The words after `python -m trainwright.train` for one job."""
    found = recipe_of(job)
    if found is not None and found.trainer != "trainwright":
        raise UserError(f"recipe {job.recipe!r} runs another trainer", where=f"job {job.name}")
    if job.workers is not None:
        raise UserError(
            "our trainer reads ahead in a thread and has no loader processes", where=f"job {job.name}: workers",
            fix="leave `workers` out",
        )  # fmt: skip
    model = job.model or (found.model if found else None)
    if model is None:
        raise UserError(f"job {job.name!r} names neither a recipe, a model nor a script", fix="add `recipe:`")
    shape = lookup(model)
    plan = plan_of(job, ranks, instance)
    sequence = job.sequence or (found.sequence if found else min(shape.context, 8192))
    batch = job.batch or (found.batch if found else Batch())
    samples = samples_of(batch, sequence, plan)
    plan.check(shape, ranks, sequence, samples)
    micro = micro_of(job, batch, samples, plan)
    options: dict[str, object] = {
        "model": model,
        "data": job.data or (found.data if found else "builtin:stdlib"),
        "steps": job.steps or (found.steps if found else None),
        "sequence": sequence,
        "batch": samples,
        "micro-batch": micro,
        "parallel": str(plan) if plan.world > 1 else None,
        "precision": job.precision or (found.precision if found else None),
        **_optimizer(job, found),
        **_checkpoints(job, found),
    }
    if recompute_of(job) != "none":
        options["recompute"] = recompute_of(job)
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return [*words, *job.args]


def _optimizer(job: Job, found: Recipe | None) -> dict[str, object]:
    said, base = job.optimizer, found.optimizer if found else None
    options: dict[str, object] = {
        "lr": (said.lr if said else None) or (base.lr if base else None),
        "warmup": warmup_of(job),
        "schedule": (said.schedule if said else None) or (base.schedule if base else None),
        "decay": said.decay if said else None,
    }
    if base is not None:
        beta1, beta2 = base.betas
        more = {
            "min-lr": base.final,
            "weight-decay": base.weight_decay,
            "beta1": beta1,
            "beta2": beta2,
            "clip": base.clip,
        }
        options |= more
    if options["schedule"] == "constant":
        options |= {"schedule": "linear", "min-lr": 1.0}  # a line from the peak to the peak
    return options


def _checkpoints(job: Job, found: Recipe | None) -> dict[str, object]:
    said = job.checkpoint or (found.checkpoint if found else None)
    if said is None:
        return {}
    every = said.steps if said.steps is not None else f"{said.every:g}s" if said.every is not None else None
    return {"checkpoint-every": every, "checkpoint-to": said.to, "keep-last": said.keep}
