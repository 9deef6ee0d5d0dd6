"""Every recipe's plan at its real size: torch's fake process group stands for all ranks, and the model is built on the
meta device. What a rank keeps is what the predictor counts for it."""

import pytest
from ranks import run_ranks

from resolving import loaded
from trainwright.jobs.resolve import resolve_job
from trainwright.predict.constants import constants
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import stage_parameters
from trainwright.predict.request import PredictRequest
from trainwright.recipes.load import names, recipe
from trainwright.train.models.shape import lookup

RECIPES = [
    name
    for name in names()
    if name != "cpu-ddp" and recipe(name).trainer == "trainwright" and lookup(str(recipe(name).model)).kind == "decoder"
]
INSTANCE = "p5.48xlarge"
LARGER = {  # model, plan, nodes
    "405b on 1,024": ("llama3.1-405b", "shard=16,tp=8,pp=8", 128),
    "235b on 512": ("qwen3-235b-a22b", "shard=64,ep=32,tp=4,pp=2", 64),
    "671b on 512": ("deepseek-v3", "shard=512,ep=64", 64),
}


def plan_of(name: str) -> tuple[str, str, int]:
    """(model, plan, nodes) of a recipe on as many nodes as it names."""
    nodes = int(recipe(name).hardware.split()[0])
    queue = {"name": "q", "instance": INSTANCE, "count": nodes}
    spec = {"name": "x", "platform": "parallelcluster", "queues": [queue], "jobs": [{"name": "j", "recipe": name}]}
    training = resolve_job(loaded(spec)).require().training
    return str(training.model), str(training.plan), nodes


def kept_parameters(cases: list[tuple[str, str]]) -> list[int]:
    """Parameters that the fullest of the first and the last rank keeps, for each (model, plan)."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from trainwright.train.build import _stage
    from trainwright.train.engine import EngineOptions
    from trainwright.train.objectives.causal_lm import CausalLM
    from trainwright.train.optimizer import local
    from trainwright.train.parallel.layout import layout
    from trainwright.train.parallel.plan import ParallelPlan

    def kept(model: str, plan: ParallelPlan, rank: int) -> int:
        dist.init_process_group("fake", rank=rank, world_size=plan.world, store=FakeStore())
        try:
            here, objective = layout(plan, torch.device("cpu")), CausalLM(lookup(model))
            build = (objective, here, EngineOptions(precision="bf16"), torch.float32)
            stages = [_stage(*build, chunk, torch.device("meta"), []) for chunk in range(plan.virtual_stages)]
            return sum(local(param).numel() for stage in stages for param in stage.parameters())
        finally:
            dist.destroy_process_group()

    plans = [(model, ParallelPlan.parse(text)) for model, text in cases]
    return [max(kept(model, plan, rank) for rank in {0, plan.world - 1}) for model, plan in plans]


def judge(cases: dict[str, tuple[str, str, int]]) -> None:
    counts = run_ranks(kept_parameters, 1, [(model, plan) for model, plan, _ in cases.values()])[0]
    for (name, (model, plan, nodes)), count in zip(cases.items(), counts, strict=True):
        setup = lay_out(PredictRequest(model, INSTANCE, nodes, plan, sequence=1024), constants())
        plain, experts = stage_parameters(setup)
        predicted = plain / (setup.plan.shard * setup.plan.cp) + experts / setup.expert_replicas
        assert count == pytest.approx(predicted, rel=0.02), (name, plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_rank_keeps_what_is_predicted(name):
    judge({name: plan_of(name)})


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_a_rank_of_a_larger_world_keeps_what_is_predicted(name):
    judge({name: LARGER[name]})


def test_a_rank_of_64_keeps_what_is_predicted():
    judge({"mixtral": ("mixtral-8x7b", "shard=64,ep=8", 8)})
