"""A resolved job as a prediction: the machines of its queue, its plan and batch, the storage that its checkpoints go
to."""

from __future__ import annotations

from trainwright.catalog.storage import lustre_monthly_usd
from trainwright.errors import UserError
from trainwright.jobs.resolved import ResolvedJob, Training
from trainwright.predict.calibrate import LOCAL, overrides
from trainwright.predict.constants import Constants
from trainwright.predict.local import predict_local
from trainwright.predict.plan import Plan
from trainwright.predict.prediction import Prediction, predict
from trainwright.spec.model import Spec

MB = 1e6
TIB = 2**40
PRICE_KIND = {"spot": "spot", "block": "capacity-block"}


def predict_job(job: ResolvedJob, c: Constants | None = None) -> Prediction:
    """Predict a job on the machines of its queue, or on this machine where its platform has no instance types."""
    training = job.training
    if training is None or training.shape is None:
        raise UserError(f"job {job.name!r} says nothing of the model that it trains", fix="add `model:` to the job")
    if job.placement.queue.instance is None:
        pace = overrides().get(LOCAL, 1.0)
        micro = training.micro_batch or 1  # the trainer's own default
        return predict_local(training.shape, job.ranks, training.sequence, training.batch, micro, pace)
    return _on_ec2(job, training, job.placement.queue.instance, c)


def _on_ec2(job: ResolvedJob, training: Training, instance: str, c: Constants | None) -> Prediction:
    axes, steps = training.plan, training.steps
    plan = Plan(
        axes.replicate, axes.shard, axes.tp, axes.pp, axes.cp, axes.ep, axes.virtual_stages,
        zero=3 if axes.shard * axes.cp > 1 else 0,
    )  # fmt: skip
    ours = job.trainer == "trainwright"
    every = training.checkpoint.every if training.checkpoint else None
    assert training.shape is not None
    return predict(
        training.shape, instance, job.placement.nodes, plan, seq=training.sequence,
        batch_tokens=training.tokens_per_step, micro_batch=training.micro_batch or (1 if ours else None),
        precision=training.precision or "bf16", recompute=training.recompute,
        tokens=float(steps * training.tokens_per_step) if steps else None, region=job.spec.region or "us-east-1",
        price_kind=PRICE_KIND.get(job.placement.queue.capacity.kind, "on-demand"),
        storage_gb_s=storage_gb_s(job), storage_usd_month=storage_usd_month(job.spec), checkpoint_s=every, c=c,
    )  # fmt: skip


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
