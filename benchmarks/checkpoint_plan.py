"""What planning a checkpoint costs in a large world, without its ranks: torch's fake process group builds the stages of
a model on the meta device, and the plan of every rank is made from them, as torch.distributed.checkpoint makes it.

    PYTHONPATH=src python benchmarks/checkpoint_plan.py [--model llama3.1-405b] [--plan shard=16,tp=8,pp=8]
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from dataclasses import replace
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import (
    DefaultSavePlanner,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.train.build import _stage
from trainwright.train.engine import EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.objectives.causal_lm import CausalLM
from trainwright.train.parallel.layout import layout
from trainwright.train.parallel.plan import ParallelPlan

KINDS = ("model", "exp_avg", "exp_avg_sq")


def stage_state(model: str, plan: ParallelPlan, rank: int) -> dict[str, Any]:
    """What the first rank of a pipeline stage saves, on the meta device."""
    dist.init_process_group("fake", rank=rank, world_size=plan.world, store=FakeStore())
    try:
        here, objective = layout(plan, torch.device("cpu")), CausalLM(lookup(model))
        options = EngineOptions(precision="bf16")
        stages = [_stage(objective, here, options, torch.float32, chunk, torch.device("meta"))
                  for chunk in range(plan.virtual_stages)]  # fmt: skip
        params = {name: param.detach() for stage in stages for name, param in stage.named_parameters()}
        return {f"{kind}.{name}": param for kind in KINDS for name, param in params.items()}
    finally:
        dist.destroy_process_group()


def rank_plans(state: dict[str, Any], plan: ParallelPlan) -> list[SavePlan]:
    """The plan of every rank of one stage: the same tensors, at other coordinates of the mesh."""
    meshes = {id(t.device_mesh): t.device_mesh for t in state.values() if isinstance(t, DTensor)}
    plans = []
    for shard, tensor in product(range(plan.shard), range(plan.tp)):
        place = {"shard": shard, "tensor": tensor}
        for mesh in meshes.values():
            mesh._coordinate_on_dim = [place.get(name, 0) for name in mesh.mesh_dim_names]
        own = create_default_local_save_plan(state, is_coordinator=not plans)
        plans.append(replace(own, planner_data={key: tuple(key.split(".", 1)) for key in state}))
    return plans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="llama3.1-405b")
    parser.add_argument("--plan", default="shard=16,tp=8,pp=8")
    args = parser.parse_args()
    plan = ParallelPlan.parse(args.plan)
    plans: list[SavePlan] = []
    spent = 0.0
    for stage in range(plan.pp):
        state = stage_state(args.model, plan, stage * plan.shard * plan.tp)
        began = time.perf_counter()
        plans += rank_plans(state, plan)
        spent += time.perf_counter() - began
    message = len(pickle.dumps(plans[0]))
    print(f"{args.model}, {plan}: {len(plans)} ranks, {sum(len(p.items) for p in plans):,} items")
    print(f"local plan: {1e3 * spent / len(plans):.1f} ms and {message / 1e3:.0f} kB per rank")
    planner = DefaultSavePlanner(enable_plan_caching=True)
    planner.set_up_planner({}, is_coordinator=True)
    began = time.perf_counter()
    _, metadata = planner.create_global_plan(plans)
    print(f"global plan on the first rank: {time.perf_counter() - began:.1f} s")
    print(f"  received {message * len(plans) / 1e6:.0f} MB, metadata {len(pickle.dumps(metadata)) / 1e6:.1f} MB")
    print(f"  memory of this process at its peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
    unchanged = [SavePlan([], usable=False)] * len(plans)
    began = time.perf_counter()
    planner.create_global_plan(unchanged)
    sent = len(pickle.dumps(unchanged[0]))
    print(f"second save, cached: {1e3 * (time.perf_counter() - began):.2f} ms, {sent} B per rank")


if __name__ == "__main__":
    main()
