"""Linear layers with chosen products give what plain ones give, forward and backward, with and without a bias."""

import copy

import pytest
import torch

from trainwright.train.models.decoder import Decoder, ForwardInputs
from trainwright.train.models.shape import lookup
from trainwright.train.products import apply_chosen_products
from trainwright.train.readback import Readback


@pytest.mark.parametrize("name", ["gpt2-124m-debug", "llama3.2-1b-debug"])
def test_chosen_products_are_linear_layers(name):
    shape = lookup(name)
    torch.manual_seed(0)
    plain = Decoder(shape)
    chosen = copy.deepcopy(plain)
    apply_chosen_products(chosen)
    tokens = torch.randint(0, shape.vocab, (2, 17))
    positions = torch.arange(16).expand(2, -1)
    from trainwright.train.models.rotary import rotary_cos_sin

    angles = rotary_cos_sin(shape, positions) if shape.position == "rope" else None
    inputs = ForwardInputs(positions, angles, targets=tokens[:, 1:], scale=torch.tensor(0.01))
    grads = []
    for model in (plain, chosen):
        loss = model(tokens[:, :-1], inputs)
        grads.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_values_are_those_of_their_time():
    loss, norm = torch.tensor(2.5), torch.tensor(float("nan"))
    values = Readback(loss, norm)
    loss.zero_()
    assert values.read()[0] == 2.5
    assert values.read()[1] != values.read()[1]
