"""A backward in two parts gives the gradients of one, and puts off those of all plain matrix products."""

import pytest
import torch

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan
from trainwright.train.parallel.split_backward import backward_input


@pytest.mark.parametrize("model", ["llama3.1-8b-debug", "gpt2-124m-debug"])
def test_two_parts_give_the_gradients_of_one(model):
    engine = Engine(lookup(model), ParallelPlan(), EngineOptions(seed=1), "cpu")
    tokens = torch.randint(0, 256, (2, 16), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, tokens.roll(-1, 1), torch.arange(16).expand(2, -1))
    stage = engine.runner.stages[0]
    _, inputs = engine.objective.inputs(batch, engine.layout, torch.tensor(0.1))
    stage.first = False
    x = torch.randn(2, 16, stage.shape.hidden, generator=torch.Generator().manual_seed(1), requires_grad=True)

    stage(x, inputs).backward()
    named = [("input", x), *engine.params.items()]
    wanted = {name: tensor.grad for name, tensor in named if tensor.grad is not None}
    for _, tensor in named:
        tensor.grad = None

    products = backward_input(stage(x, inputs), None, x)
    torch.testing.assert_close(x.grad, wanted["input"])
    put_off = {name for name, tensor in named if name in wanted and tensor.grad is None}
    assert put_off == {name for name in wanted if name.startswith("blocks.") and engine.params[name].ndim == 2}
    for product in products:
        product.complete()
    for name, tensor in named:
        if name in wanted:
            torch.testing.assert_close(tensor.grad, wanted[name])
