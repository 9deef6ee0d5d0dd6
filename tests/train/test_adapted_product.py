"""The joined product of a frozen weight and its adapter equals the two products it replaces, with all gradients."""

import torch
import torch.nn.functional as F

from trainwright.train.kernels.adapted_product import adapted_product, room_for


def test_joined_product_and_its_gradients():
    torch.manual_seed(0)
    inner, outer, rank = 24, 40, 6
    room = room_for(rank)
    whole = torch.zeros(outer + room, inner + room, dtype=torch.float64)
    weight = whole[:outer, :inner]
    weight.copy_(torch.randn(outer, inner))
    x, a, b = (
        torch.randn(size, dtype=torch.float64, requires_grad=True)
        for size in ((2, 5, inner), (rank, inner), (outer, rank))
    )
    upstream = torch.randn(2, 5, outer, dtype=torch.float64)
    for _ in range(2):  # the second time, the room beside the weight holds the adapter of the first
        b.data *= 2
        joined = adapted_product(x, whole, a, b)
        got = torch.autograd.grad(joined, (x, a, b), upstream)
        plain = F.linear(x, weight) + F.linear(F.linear(x, a), b)
        wanted = torch.autograd.grad(plain, (x, a, b), upstream)
        torch.testing.assert_close(joined, plain)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other)
