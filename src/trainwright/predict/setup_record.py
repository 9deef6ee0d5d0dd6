"""A Setup as plain data in `prediction.json`, and back: what explains or calibrates a finished run starts from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainwright.catalog.models import model, shape_from
from trainwright.predict.hardware import cluster
from trainwright.predict.objective import Objective, objective_of
from trainwright.predict.profiles import profile
from trainwright.predict.setup import Batch, Setup, zero_stage
from trainwright.train.parallel.plan import ParallelPlan, complete, parse_axes

OPTIONS = (
    "precision", "zero", "rowwise", "recompute", "recompute_part", "offload_part", "zero_bubble", "frozen",
    "adapter_rank", "base_bits", "optimizer", "context", "balanced", "packed", "float8", "float8_gather",
)  # fmt: skip


def to_record(s: Setup) -> dict[str, Any]:
    """Everything `from_record` needs. Hardware is restored from the catalog, the trainer from its profile."""
    return {
        "shape": asdict(s.shape),
        "instance": s.cluster.instance,
        "nodes": s.cluster.nodes,
        "gpus_per_node": s.cluster.per_node,
        "plan": asdict(s.plan),
        "batch": asdict(s.batch),
        "trainer": s.profile.name,
        "objective": asdict(s.objective),
        **{name: getattr(s, name) for name in OPTIONS},
    }


def from_record(prediction: Mapping[str, Any]) -> Setup | None:
    """The setup of a prediction's record; None for a prediction that was measured on the machine itself."""
    record = prediction.get("setup")
    if record is None:
        return _from_earlier_version(prediction) if prediction.get("instance") else None
    fields = dict(record["shape"])
    shape = shape_from(fields.pop("name"), fields)
    objective = Objective(**record["objective"]) if "objective" in record else objective_of(shape)
    return Setup(
        shape,
        cluster(record["instance"], record["nodes"], record["gpus_per_node"]),
        ParallelPlan(**record["plan"]),
        Batch(**record["batch"]),
        profile(record["trainer"]),
        objective=objective,
        **{name: record[name] for name in OPTIONS if name in record},
    )


def _from_earlier_version(prediction: Mapping[str, Any]) -> Setup:
    """Versions before 2026-11-15 wrote no `setup`: the plan was text, and `recompute` a sentence."""
    machines = cluster(prediction["instance"], prediction["nodes"])
    trainer = profile(prediction["trainer"])
    plan = complete(parse_axes(prediction["plan"]), machines.gpus) or ParallelPlan.parse(prediction["plan"])
    policy, _, part = prediction["recompute"].partition(" on ")
    return Setup(
        model(prediction["model"]),
        machines,
        plan,
        Batch(prediction["seq"], prediction["micro_batch"], prediction["microbatches"]),
        trainer,
        precision=prediction["precision"],
        zero=zero_stage(plan, trainer),
        recompute=policy,
        recompute_part=float(part.split("%")[0]) / 100 if part else 1.0,
    )
