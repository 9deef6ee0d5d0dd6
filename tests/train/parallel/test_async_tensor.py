"""Async tensor parallelism: what a compiled layer does with its collectives is in the form that torch's pass overlaps
with the products, in the forward and in the backward pass."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as symmetric
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.parallel.async_tensor import require_peers
from trainwright.train.parallel.collectives import compiled_gather, compiled_reduce_scatter
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.setup import require_async


@pytest.fixture
def group():
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_both_collectives_fuse_with_their_products(group, monkeypatch):
    from torch._inductor.decomposition import decompositions
    from torch._inductor.fx_passes.micro_pipeline_tp import micro_pipeline_tp_pass
    from torch._inductor.fx_passes.post_grad import remove_noop_ops, view_to_reshape
    from torch.fx.experimental.proxy_tensor import make_fx

    def mlp(x, up, down):
        wide = torch.nn.functional.linear(compiled_gather(x, 1, 2, group.group_name), up)
        return compiled_reduce_scatter(torch.nn.functional.linear(wide.relu(), down), 1, 2, group.group_name)

    inputs = torch.randn(2, 32, 64), torch.randn(128, 64), torch.randn(64, 128)
    traced = make_fx(mlp, decompositions, tracing_mode="fake")(*inputs)
    remove_noop_ops(traced.graph)
    view_to_reshape(traced)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)  # this torch has no NCCL
    with symmetric._test_mode():
        micro_pipeline_tp_pass(traced.graph)
    targets = [str(node.target) for node in traced.graph.nodes]
    assert "symm_mem.fused_all_gather_matmul.default" in targets
    assert "symm_mem.fused_matmul_reduce_scatter.default" in targets
    assert not any("_c10d_functional" in target for target in targets)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plan": ParallelPlan(shard=2)}, "tp is 1"),
        ({"device": "cpu"}, "a CPU has no symmetric memory"),
        ({"compile": False}, "compiled blocks"),
        ({"precision": "fp8"}, "does not split float8"),
    ],
)
def test_it_is_refused_where_it_cannot_work(change, words):
    given = {"plan": ParallelPlan(tp=2), "device": "cuda", "compile": True, "precision": "bf16", **change}
    config = TrainConfig(async_tp=True, compile=given["compile"], precision=given["precision"])
    with pytest.raises(UserError, match=words):
        require_async(config, given["plan"], given["device"])


def test_peers_that_cannot_reach_each_other_are_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.can_device_access_peer", lambda one, other: {one, other} != {2, 3})
    require_peers(SimpleNamespace(plan=ParallelPlan(tp=2), tensor_rank=1), torch.device("cuda", 1))
    with pytest.raises(UserError, match="GPU 2 cannot read the memory of its tensor peer 3"):
        require_peers(SimpleNamespace(plan=ParallelPlan(tp=2), tensor_rank=0), torch.device("cuda", 2))
    with pytest.raises(UserError, match="tensor peer 4"):
        require_peers(SimpleNamespace(plan=ParallelPlan(tp=8), tensor_rank=0), torch.device("cuda", 0))
