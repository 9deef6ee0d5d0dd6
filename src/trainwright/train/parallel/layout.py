"""This rank's place in the plan: one DeviceMesh over (pipeline, replicate, shard x context, tensor) and the groups
that are not dimensions of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainwright.train.parallel.plan import ParallelPlan


@dataclass(frozen=True)
class Layout:
    """The mesh and this rank's place on each axis; a single process has no mesh and rank 0 everywhere."""

    plan: ParallelPlan
    mesh: DeviceMesh | None
    context_group: Any
    replicate_rank: int = 0
    shard_rank: int = 0
    context_rank: int = 0
    tensor_rank: int = 0
    pipeline_rank: int = 0
    context: str = "gather"  # how context ranks meet each other's keys: gather | all-to-all | ring
    expert_mesh: DeviceMesh | None = None  # the same ranks, with an axis over which experts are spread; where ep > 1

    @property
    def data_rank(self) -> int:
        return self.replicate_rank * self.plan.shard + self.shard_rank

    @property
    def sharded(self) -> bool:
        """Whether parameters are kept by FSDP. Context peers hold copies of them, so they shard them too."""
        return self.plan.data * self.plan.cp > 1

    def axis(self, *names: str) -> DeviceMesh:
        """The part of the mesh along these dimensions, through this rank."""
        assert self.mesh is not None, "a single process has no mesh"
        return self.mesh[names]

    @property
    def data_mesh(self) -> DeviceMesh:
        return self.axis("replicate", "shard") if self.plan.replicate > 1 else self.axis("shard")

    def subgroup(self, pick: Callable[[list[int]], list[int]]) -> Any:
        """A new group of the ranks that `pick` takes from this rank's pipeline, or None where it leaves this rank out.
        All ranks of the world must call it together."""
        assert self.mesh is not None, "a single process has no pipeline"
        pipelines = self.mesh.mesh.reshape(self.plan.pp, -1).T.tolist()
        mine, _ = dist.new_subgroups_by_enumeration([pick(ranks) for ranks in pipelines])  # type: ignore[no-untyped-call]
        return mine

    def heads(self, count: int) -> slice:
        """The attention heads that this rank attends for."""
        parts, rank = self.plan.tp, self.tensor_rank
        if self.exchanges:
            parts, rank = parts * self.plan.cp, rank * self.plan.cp + self.context_rank
        each = count // parts
        return slice(rank * each, (rank + 1) * each)

    @property
    def exchanges(self) -> bool:
        """Context parallelism by all-to-all: a rank attends over whole rows, for a part of its heads."""
        return self.plan.cp > 1 and self.context == "all-to-all"

    @property
    def whole_rows(self) -> bool:
        """Whether attention on this rank is over whole sequences."""
        return self.plan.cp == 1 or self.exchanges

    @property
    def expert_group(self) -> Any:
        assert self.expert_mesh is not None, "experts are not spread"
        return self.expert_mesh.get_group("expert")

    @property
    def expert_rank(self) -> int:
        return self.expert_mesh.get_local_rank("expert") if self.expert_mesh is not None else 0

    @property
    def expert_data_mesh(self) -> DeviceMesh:
        """The ranks that hold the same experts: between them these are sharded, and copied between replicas."""
        assert self.expert_mesh is not None, "experts are not spread"
        names = ("copies", "parts") if self.expert_mesh.size(1) > 1 else ("parts",)
        return self.expert_mesh[names]

    @property
    def tensor_group(self) -> Any:
        return self.axis("tensor").get_group() if self.plan.tp > 1 else None


def layout(plan: ParallelPlan, device: torch.device, context: str = "gather") -> Layout:
    """The layout of this rank; all ranks must call it, as it creates the process groups."""
    if plan.world == 1:
        return Layout(plan, None, None)
    sizes = (plan.pp, plan.replicate, plan.shard * plan.cp, plan.tp)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("pipeline", "replicate", "shard", "tensor"))
    pipeline, replicate, folded, tensor = mesh.get_coordinate() or ()
    shard, context_rank = divmod(folded, plan.cp)
    group = _context_group(plan) if plan.cp > 1 else None
    experts = _expert_mesh(plan, device) if plan.ep > 1 else None
    return Layout(plan, mesh, group, replicate, shard, context_rank, tensor, pipeline, context, experts)


def _expert_mesh(plan: ParallelPlan, device: torch.device) -> DeviceMesh:
    """Experts are spread over neighbouring data ranks; those with the same experts share them as the others share the
    rest of the model: replicas stay replicas where a group of experts lies within one."""
    shard = plan.shard * plan.cp
    holders = plan.data * plan.cp // plan.ep
    copies = plan.replicate if shard % plan.ep == 0 else holders if plan.ep % shard == 0 else 1
    sizes = (plan.pp, copies, holders // copies, plan.ep, plan.tp)
    return init_device_mesh(device.type, sizes, mesh_dim_names=("pipeline", "copies", "parts", "expert", "tensor"))


def _context_group(plan: ParallelPlan) -> Any:
    """Peers that share each sequence: neighbours in the folded shard dimension of the mesh."""
    ranks = torch.arange(plan.world).view(-1, plan.cp, plan.tp).transpose(1, 2).reshape(-1, plan.cp)
    mine, _ = dist.new_subgroups_by_enumeration(ranks.tolist())  # type: ignore[no-untyped-call]
    return mine
