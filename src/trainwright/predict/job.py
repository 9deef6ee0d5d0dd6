"""A resolved job as a prediction: the machines of its queue, its plan and batch, the storage that its checkpoints go
to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainwright.catalog.storage import lustre_monthly_usd
from trainwright.errors import UserError
from trainwright.jobs.arguments import trainer_arguments
from trainwright.jobs.frameworks import known_framework
from trainwright.jobs.resolved import ResolvedJob, Training
from trainwright.predict.constants import Constants
from trainwright.predict.layout import lay_out
from trainwright.predict.objective import objective_of, tokens_per_sample
from trainwright.predict.prediction import Prediction, predict
from trainwright.predict.profiles import profile
from trainwright.predict.request import PredictRequest
from trainwright.predict.setup import Batch, Setup
from trainwright.recipes.model import Foreign
from trainwright.spec.model import Spec
from trainwright.train.float8.recipes import DEFAULT
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan

MB = 1e6
TIB = 2**40
# Options of recipes that take time and memory beside the training of one model.
NOT_MODELLED = {
    "--teacher": "the teacher of a distillation (its forward pass and its weights)",
    "--generations": "the generation of answers (GRPO)",
}
PRICE_KIND = {"spot": "spot", "block": "capacity-block"}


def predict_job(job: ResolvedJob, c: Constants | None = None) -> Prediction:
    """Predict a job on the machines of its queue, or on this machine where its platform has no instance types."""
    training, shape = _training(job)
    if job.placement.queue.instance is None and job.spec.platform == "local":
        from trainwright.predict.calibrate import LOCAL, overrides  # with `check`, nothing here is needed of these
        from trainwright.predict.local import predict_local

        return predict_local(shape, training.plan, _local_batch(training), overrides().get(LOCAL, 1.0))
    return replace(predict(_request(job, training, shape), c), cluster=job.spec.name)


def setup_of(job: ResolvedJob, c: Constants) -> Setup:
    """How a job would run on the machines of its queue: what its memory depends on, without its time and cost."""
    return lay_out(_request(job, *_training(job)), c)


def _training(job: ResolvedJob) -> tuple[Training, ModelShape]:
    if job.training is None or job.training.shape is None:
        raise UserError(f"job {job.name!r} says nothing of the model that it trains", fix="add `model:` to the job")
    return job.training, job.training.shape


def is_known(job: ResolvedJob) -> bool:
    """Whether the job can be predicted at once: on this machine a moment of measuring comes first, unless that was done
    within the last hour."""
    training = job.training
    if job.placement.queue.instance is not None or training is None or training.shape is None:
        return training is not None
    from trainwright.predict.local import is_probed

    return job.spec.platform == "local" and is_probed(training.shape, training.plan, _local_batch(training))


def _local_batch(training: Training) -> Batch:
    micro = training.micro_batch or 1  # the trainer's own default
    return Batch(training.sequence, micro, max(1, training.batch // training.plan.data // micro))


def _request(job: ResolvedJob, training: Training, shape: ModelShape) -> PredictRequest:
    instance = job.placement.queue.instance
    if instance is None:
        raise UserError(
            f"queue {job.placement.queue.name!r} does not say which instance type its nodes are",
            fix="add `instance:` to the queue",
        )
    trainer, plan, zero = _trainer(job, training.plan)
    own = training.objective or "" if job.trainer == "trainwright" else ""  # another trainer's words are not ours
    objective = objective_of(shape, own, **_numbers(training.options))
    per_step = training.batch * tokens_per_sample(shape, training.sequence, objective)
    return PredictRequest(
        shape,
        instance,
        job.placement.nodes,
        plan,
        trainer=trainer,
        zero=zero,
        adapter_rank=training.adapters.rank,
        base_bits=training.adapters.base_bits,
        optimizer=training.optimizer.kind,
        context=training.context if job.trainer == "trainwright" else "",
        gpus_per_node=job.placement.processes,
        sequence=training.sequence,
        sequences=training.batch,
        micro_batch=training.micro_batch,  # None: the trainer takes as much as fits
        precision=training.precision or "bf16",
        float8="" if training.float8 == DEFAULT else training.float8 or "",
        float8_gather=bool({**training.options, **trainer_arguments(job.job.args).values}.get("float8_gather"))
        if job.trainer == "trainwright"
        else False,
        recompute=training.recompute,
        offload_activations=training.offload_activations,
        pipeline_schedule=training.pipeline_schedule,
        objective=objective,
        tokens=float(training.steps * per_step) if training.steps else None,
        region=job.spec.region or "us-east-1",
        price_kind=PRICE_KIND.get(job.placement.queue.capacity.kind, "on-demand"),
        storage_gb_s=storage_gb_s(job),
        storage_usd_month=storage_usd_month(job.spec),
        checkpoint_s=training.checkpoint.every if training.checkpoint else None,
    )


def _numbers(options: Mapping[str, str | bool | int | float]) -> dict[str, float]:
    return {name: float(value) for name, value in options.items() if isinstance(value, int | float)}


def _trainer(job: ResolvedJob, plan: ParallelPlan) -> tuple[str, ParallelPlan, int | None]:
    """The trainer's profile, and the plan in its terms: a distributed optimizer shares its state among replicas."""
    known = known_framework(job.recipe) if job.trainer == "foreign" else None
    if known is None:
        return "trainwright", plan, None
    if known.profile is None:
        raise UserError(f"{known.title} is not modelled", fix="a framework with `profile:` in its file is")
    for option, beside in NOT_MODELLED.items():
        if _option(job, option) is not None:
            raise UserError(f"{beside} is not modelled beside the training steps", fix="measure a short run instead")
    stage = _zero_stage(job)
    if stage:
        return known.profile, plan if plan.shard > 1 else replace(plan, shard=plan.replicate, replicate=1), stage
    if profile(known.profile).data != "zero1":
        return known.profile, plan, None
    if plan.shard > 1:
        return known.profile, plan, 3
    return known.profile, replace(plan, shard=plan.replicate, replicate=1), None


def _zero_stage(job: ResolvedJob) -> int:
    """The ZeRO stage that a framework takes as an option, beside replicas of the model; 0 where it has none."""
    stage = _option(job, "--zero-stage")
    trainer = job.recipe.trainer if job.recipe is not None else None
    return stage if isinstance(stage, int) and isinstance(trainer, Foreign) and trainer.framework == "deepspeed" else 0


def _option(job: ResolvedJob, name: str) -> object:
    """An option that the recipe of another framework, or its file, sets."""
    trainer = job.recipe.trainer if job.recipe is not None else None
    if not isinstance(trainer, Foreign) or trainer.known is None:
        return None
    return trainer.over(trainer.known).options.get(name)


def storage_gb_s(job: ResolvedJob) -> float | None:
    """Throughput of the file system that holds the job's checkpoints; None where the spec does not say."""
    checkpoint = job.training.checkpoint if job.training else None
    target = (checkpoint.to if checkpoint else None) or ""
    for item in job.spec.storage:
        lustre = item.lustre
        if lustre and (not target or target.startswith(item.mount)) and lustre.capacity and lustre.throughput:
            return lustre.capacity / TIB * lustre.throughput * MB / 1e9
    return None


def storage_usd_month(spec: Spec) -> float | None:
    """List price of the spec's Lustre file systems; None where there is none to price."""
    prices = []
    for lustre in (item.lustre for item in spec.storage):
        if lustre and lustre.capacity and not lustre.id:
            kind = (lustre.deployment or "persistent-2").upper().replace("-", "_")
            size = round(lustre.capacity / 2**30)
            prices.append(lustre_monthly_usd(size, lustre.throughput, spec.region or "us-east-1", kind))
    return sum(prices) if prices else None
