"""A job of a spec as a prediction: what the job, its recipe and its queue say, put together as the trainer would."""

from __future__ import annotations

from trainwright.catalog.models import model as find_model
from trainwright.catalog.storage import lustre_monthly_usd
from trainwright.errors import UserError, did_you_mean
from trainwright.predict.calibrate import LOCAL, overrides
from trainwright.predict.constants import Constants
from trainwright.predict.local import predict_local
from trainwright.predict.prediction import Prediction, predict
from trainwright.predict.request import PredictRequest
from trainwright.predict.setup import Batch as LocalBatch
from trainwright.recipes.arguments import micro_of, plan_of, recipe_of, recompute_of, samples_of
from trainwright.spec.defaults import resolve
from trainwright.spec.model import Batch, Job, Queue, Spec

MB = 1e6
TIB = 2**40
PRICE_KIND = {"spot": "spot", "block": "capacity-block"}


def find_job(spec: Spec, name: str | None) -> Job:
    if not spec.jobs:
        raise UserError(f"spec {spec.name!r} has no jobs", fix="add one under `jobs:`, or give --model and --instance")
    if name is None:
        return spec.jobs[0]
    found = next((job for job in spec.jobs if job.name == name), None)
    if found is None:
        names = [job.name for job in spec.jobs]
        raise UserError(
            f"no job {name!r} in spec {spec.name!r}", fix=did_you_mean(name, names) or f"there is: {', '.join(names)}"
        )
    return found


def storage_gb_s(spec: Spec, job: Job) -> float | None:
    """Throughput of the file system that holds the job's checkpoints; None where the spec does not say."""
    target = (job.checkpoint.to if job.checkpoint else None) or ""
    for item in spec.storage:
        lustre = item.lustre
        if lustre and (not target or target.startswith(item.mount)) and lustre.capacity and lustre.throughput:
            return lustre.capacity / TIB * lustre.throughput * MB / 1e9
    return None


def storage_usd_month(spec: Spec) -> float | None:
    """List price of the spec's Lustre file systems; None where there is none to price."""
    found = []
    for lustre in (item.lustre for item in spec.storage):
        if lustre and lustre.capacity and not lustre.id:
            kind = (lustre.deployment or "persistent-2").upper().replace("-", "_")
            size = round(lustre.capacity / 2**30)
            found.append(lustre_monthly_usd(size, lustre.throughput, spec.region or "us-east-1", kind))
    return sum(found) if found else None


def model_and_sequence(job: Job) -> tuple[str, int, Batch]:
    recipe = recipe_of(job)
    model = job.model or (recipe.model if recipe else None)
    if model is None:
        raise UserError(
            f"job {job.name!r} runs a script: its model is not known", fix="add `model:` to the job, for predict's sake"
        )
    shape = find_model(model)
    length = job.sequence or (recipe.sequence if recipe else min(shape.context, 8192))
    return model, length, job.batch or (recipe.batch if recipe else Batch())


def predict_job(spec: Spec, name: str | None = None, c: Constants | None = None) -> Prediction:
    """Predict a job of a spec, on the machines of its queue."""
    full, _ = resolve(spec)
    job = find_job(full, name)
    queue = next((q for q in full.queues if q.name == job.queue), full.queues[0])
    if full.platform == "local" or queue.instance is None:
        return predict_on_this_machine(job, queue)
    return predict_on_ec2(full, job, queue, queue.instance, c)


def predict_on_ec2(spec: Spec, job: Job, queue: Queue, instance: str, c: Constants | None) -> Prediction:
    from trainwright.catalog.instances import instance as find_instance

    nodes = job.nodes or (queue.count.max if queue.count else 1)
    ranks = nodes * (find_instance(instance).accelerator_count or 1)
    laid_out = plan_of(job, ranks, instance)
    model, length, batch = model_and_sequence(job)
    samples = samples_of(batch, length, laid_out)
    recipe = recipe_of(job)
    ours = not job.script and (recipe is None or recipe.trainer == "trainwright")
    micro = micro_of(job, batch, samples, laid_out) or 1 if ours else batch.micro_batch
    steps = job.steps or (recipe.steps if recipe else None)
    request = PredictRequest(
        model, instance, nodes, laid_out, sequence=length, sequences=samples, micro_batch=micro,
        precision=job.precision or (recipe.precision if recipe else "bf16"),
        recompute=recompute_of(job) if ours else job.recompute,
        tokens=float(steps * samples * length) if steps else None, region=spec.region or "us-east-1",
        price_kind=PRICE_KIND.get(queue.capacity.kind, "on-demand"), storage_gb_s=storage_gb_s(spec, job),
        storage_usd_month=storage_usd_month(spec),
        checkpoint_s=job.checkpoint.every if job.checkpoint else None,
    )  # fmt: skip
    return predict(request, c)


def predict_on_this_machine(job: Job, queue: Queue) -> Prediction:
    nodes = job.nodes or queue.nodes or 1
    ranks = nodes * (job.processes or queue.gpus or 1)
    model, length, batch = model_and_sequence(job)
    laid_out = plan_of(job, ranks, None)
    samples = samples_of(batch, length, laid_out)
    micro = batch.micro_batch or 1  # the trainer's own default
    batch_here = LocalBatch(length, micro, max(1, samples // laid_out.data // micro))
    return predict_local(find_model(model), laid_out, batch_here, overrides().get(LOCAL, 1.0))
