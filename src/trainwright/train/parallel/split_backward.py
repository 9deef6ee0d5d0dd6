"""A backward pass in two parts, for the zero-bubble schedule (arXiv 2401.10241): first the gradient that the previous
stage waits for, and later the weight gradients of matrix products. Of a product only its input and the gradient of its
output are kept until then; the rest of the graph is freed by the first part.

Everything else, such as norms, embeddings, fused losses and float8 or compiled code, is done in the first part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

PRODUCTS = ("MmBackward0", "AddmmBackward0")


@dataclass
class Product:
    """A matrix product whose weight gradient is not computed yet."""

    node: Any
    weight: Any  # the edge towards the parameters
    params: list[Tensor]
    input: Tensor | None = None
    grad: Tensor | None = None

    def capture(self, grads: tuple[Tensor, ...]) -> None:
        """Called as the first part of the backward passes this product."""
        saved = "_saved_self" if self.node.name() == "MmBackward0" else "_saved_mat1"
        self.input, self.grad = getattr(self.node, saved), grads[0]
        self.node = None

    def complete(self) -> None:
        """Add the weight gradient to its parameters."""
        if self.grad is None or self.input is None:
            return
        grad = (self.grad.t() @ self.input).t()  # laid out as the weight of a linear layer is
        node, at = self.weight
        grads = [grad]
        if not hasattr(node, "variable"):
            grads = list(torch.autograd.grad([GradientEdge(node, at)], self.params, [grad]))
        with torch.no_grad():
            for param, part in zip(self.params, grads, strict=True):
                param.grad = part if param.grad is None else param.grad.add_(part)


def backward_input(y: Tensor, grad: Tensor | None, x: Tensor) -> list[Product]:
    """The gradient of `x`, and of the parameters outside of matrix products; the products that are left."""
    products, others = deferrable(y, x)
    hooks = [product.node.register_prehook(product.capture) for product in products]
    try:
        grads = torch.autograd.grad([y], [x, *others], None if grad is None else [grad], allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    for leaf, part in zip([x, *others], grads, strict=True):
        if part is not None:  # a new sum: two leaves may have been given the same tensor
            leaf.grad = part if leaf.grad is None else leaf.grad.detach() + part
    return products


def deferrable(y: Tensor, x: Tensor) -> tuple[list[Product], list[Tensor]]:
    """The products of something that depends on `x` with weights that nothing else uses; all other parameters."""
    nodes = children_first(y.grad_fn)
    on_path: set[Any] = set()  # nodes that lead to x
    below: dict[Any, dict[int, Tensor]] = {}  # parameters under a node that does not
    uses: Counter[int] = Counter()
    for node in nodes:
        children = [child for child, _ in node.next_functions if child is not None]
        leaf = getattr(node, "variable", None)
        if leaf is x or any(child in on_path for child in children):
            on_path.add(node)
            uses.update(param for child in children if child not in on_path for param in below[child])
        else:
            below[node] = {} if leaf is None else {id(leaf): leaf}
            for child in children:
                below[node].update(below[child])
    products = []
    for node in nodes:
        if node in on_path and node.name() in PRODUCTS:
            (left, _), weight = node.next_functions[-2:]
            params = below.get(weight[0], {})
            if left in on_path and params and all(uses[param] == 1 for param in params):
                products.append(Product(node, weight, list(params.values())))
    deferred = {id(param) for product in products for param in product.params}
    everything = {id(leaf): leaf for node in nodes if (leaf := getattr(node, "variable", None)) is not None}
    return products, [p for key, p in everything.items() if key not in deferred and p is not x]


def children_first(root: Any) -> list[Any]:
    """Every node of a graph after the ones that it leads to."""
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, visited = stack.pop()
        if visited:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(child, False) for child, _ in node.next_functions if child is not None]
    return order
