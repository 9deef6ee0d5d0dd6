"""An optimizer that is built before FSDP replaces the parameters trains none of them, as torch itself shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

SCRIPT = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.optim import AdamW
import torch.optim as optim

def main(args, model, other, kwargs):
    dist.init_process_group("nccl")
{lines}
    for batch in args.loader:
        model(batch).sum().backward()
        optimizer.step()
"""
BUILT = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"


def script(*lines: str) -> str:
    return SCRIPT.format(lines="\n".join(f"    {line}" for line in lines))


WRONG = [
    (BUILT, "model = FSDP(model)"),
    (BUILT, "model = FSDP(model, use_orig_params=False, device_id=0)"),
    (BUILT, "fully_shard(model)"),
    (BUILT, "model = model.to(0)", "model = FSDP(model)"),
    (BUILT, "for layer in model.layers:\n        fully_shard(layer)", "fully_shard(model, mesh=args.mesh)"),
    ("optimizer = AdamW([p for n, p in model.named_parameters()])", "wrapped = FSDP(model)"),
    ("optimizer = optim.SGD([{'params': model.parameters()}], lr=1)", "model = FSDP(model)"),
    ("optimizer = AdamW([*other.parameters(), *model.parameters()])", "model = FSDP(model)"),
    ("optimizer = AdamW(list(other.parameters()) + list(model.parameters()))", "model = FSDP(model)"),
    ("optimizer = AdamW(itertools.chain(other.parameters(), model.parameters()))", "model = FSDP(model)"),
    ("optimizer = AdamW(params=[dict(params=model.parameters(), lr=1)])", "model = FSDP(model)"),
    ("optimizer = AdamW([{'params': [p], 'lr': 1} for n, p in model.named_parameters()])", "model = FSDP(model)"),
    ("optimizer = AdamW(dict(model.named_parameters()).values())", "model = FSDP(model)"),
    ("optimizer = AdamW([p for m in [model] for p in model.parameters() if p.requires_grad])", "model = FSDP(model)"),
    ("optimizer = AdamW(set(model.parameters()) - set(other.parameters()))", "model = FSDP(model)"),
    ("optimizer = AdamW(filter(lambda p: p.requires_grad, model.parameters()))", "model = FSDP(module=model)"),
]
# The parameters by names, and models that are attributes: each with the line of the optimizer.
BY_NAMES = [
    (10, "some = [p for p in model.parameters()]", "optimizer = AdamW(some)", "fully_shard(model)"),
    (11, "some = list(model.parameters())", "groups = [{'params': some, 'lr': 1}]", "optimizer = AdamW(groups)",
     "for layer in model.layers:\n        fully_shard(layer)", "fully_shard(model)"),
    (12, "some = []", "for name, p in model.named_parameters():", "    some.append(p)",
     "optimizer = AdamW(some)", "model = FSDP(model)"),
    (13, "some = []", "for name, p in model.named_parameters():", "    group = {'params': [p], 'lr': 1}",
     "    some.append(group)", "optimizer = AdamW(some)", "model = FSDP(model)"),
    (11, "some = []", "some.extend(model.parameters())", "optimizer = AdamW(some)", "model = FSDP(model)"),
    (10, "some = {n: p for n, p in model.named_parameters()}",
     "optimizer = AdamW([{'params': [p for n, p in some.items() if p.dim() > 1]}])", "model = FSDP(model)"),
    (9, "args.optimizer = AdamW(args.model.parameters())", "args.model = FSDP(args.model)", "args.optimizer.step()"),
]  # fmt: skip
RIGHT = [
    ("model = FSDP(model)", "some = list(model.parameters())", "optimizer = AdamW(some)"),
    ("some = list(other.parameters())", "optimizer = AdamW(some)", "model = FSDP(model)"),
    ("some = list(model.parameters())", "model = FSDP(model)", "optimizer = AdamW(model.parameters())"),
    ("args.optimizer = AdamW(args.model.parameters())", "args.model = FSDP(args.model, use_orig_params=True)"),
    (
        "sizes = [p.numel() for p in model.parameters()]",
        "optimizer = AdamW(other.parameters(), lr=1 / sum(sizes))",
        "model = FSDP(model)",
    ),
    # Of the model that is wrapped, a number, ids, names and sizes.
    *(
        (line, f"optimizer = AdamW({given}, lr=1)", "model = FSDP(model)")
        for line, given in [
            ("some = {id(p) for p in model.parameters()}", "[p for p in other.parameters() if id(p) not in some]"),
            ("some = set(map(id, model.parameters()))", "filter(lambda p: id(p) not in some, other.parameters())"),
            ("some = len(list(model.parameters()))", "[{'params': other.parameters(), 'lr': 1 / some}]"),
            (
                "some = [p.numel() for p in model.parameters()]",
                "[{'params': list(other.parameters()), 'lr': sum(some)}]",
            ),
            (
                "some = [n for n, p in model.named_parameters()]",
                "[p for n, p in other.named_parameters() if n in some]",
            ),
            ("some = set(model.parameters())", "set(other.parameters()) - some"),
            ("some = [n for n, _ in model.named_parameters()]", "[other.get_parameter(n) for n in some]"),
            ("some = next(model.parameters()).dtype", "[p.to(some) for p in other.parameters()]"),
        ]
    ),
    (
        "some = []",
        "for name, p in model.named_parameters():",
        "    some.append(name)",
        "optimizer = AdamW([p for n, p in other.named_parameters() if n in some])",
        "model = FSDP(model)",
    ),
    ("args.model = FSDP(args.model)", "args.optimizer = AdamW(args.model.parameters())"),
    ("args.optimizer = AdamW(args.model.parameters())", "args.other = FSDP(args.other)"),
    ("model = FSDP(model)", BUILT),
    (BUILT, "model = FSDP(model, use_orig_params=True)"),
    (BUILT, "model = FSDP(model, use_orig_params=args.orig)"),
    (BUILT, "model = FSDP(model, **kwargs)"),
    (BUILT, "model = FSDP(model, ignored_modules=[other])"),
    (BUILT, "other = FSDP(other)"),
    (BUILT, "model = FSDP(model)", BUILT),
    (BUILT, "model = other", "model = FSDP(model)"),
    (BUILT, "if args.fsdp:\n        model = FSDP(model)"),
    (BUILT, "fully_shard(model)", "optimizer.param_groups[0]['params'] = list(model.parameters())"),
    (BUILT, "model = torch.nn.parallel.DistributedDataParallel(model)"),
    ("optimizer = AdamW(other.parameters())", "model = FSDP(model)"),
    ("count = sum(p.numel() for p in model.parameters())", "model = FSDP(model)", BUILT),
    ("if args.fsdp:\n        model = FSDP(model)\n        " + BUILT, "else:\n        " + BUILT),
]


@pytest.mark.parametrize("lines", WRONG)
def test_an_optimizer_of_parameters_that_fsdp_replaces(lines: tuple[str, ...], run: Run) -> None:
    assert shown(run("train.py", script(*lines), "PYT005")) == ["error PYT005 9"]


@pytest.mark.parametrize("lines", BY_NAMES)
def test_an_optimizer_of_named_parameters(lines: tuple[Any, ...], run: Run) -> None:
    line, *rest = lines
    assert shown(run("train.py", script(*rest), "PYT005")) == [f"error PYT005 {line}"]


@pytest.mark.parametrize("lines", RIGHT)
def test_an_optimizer_of_the_parameters_that_are_trained(lines: tuple[str, ...], run: Run) -> None:
    assert run("train.py", script(*lines), "PYT005") == []


def test_other_libraries_are_left_alone(run: Run) -> None:
    text = script(BUILT, "model = FSDP(model)")
    fairscale = text.replace("from torch.distributed.fsdp import", "from fairscale.nn import")
    composable = text.replace("torch.distributed.fsdp import", "torch.distributed._composable import")
    assert run("train.py", fairscale, "PYT005") == []
    assert run("train.py", composable.replace("= FSDP(model)", "= fully_shard(model)"), "PYT005") == []


FUNCTIONS = """
def groups(net, decay):
    return [{"params": [p for p in net.parameters()], "weight_decay": decay}]


def adam(net):
    return torch.optim.AdamW(net.parameters())


def shard(net):
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net)
    return net
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("optimizer = adam(model)", "fully_shard(model)"), ["info PYT005 9"]),
        (("optimizer = AdamW(groups(model, 0.1))", "model = FSDP(model)"), ["info PYT005 9"]),
        ((BUILT, "model = shard(model)"), ["info PYT005 9"]),
        (("model = shard(model)", "optimizer = adam(model)"), []),
        (("optimizer = adam(other)", "model = shard(model)"), []),
        (("optimizer = adam(model)", "other = shard(other)"), []),
        (("optimizer = AdamW(groups(other, 0.1))", "model = FSDP(model)"), []),
        (("optimizer = adam(model)", "model = FSDP(model, use_orig_params=True)"), []),
        (("model = FSDP(model)", "optimizer = AdamW(groups(model, 0.1))"), []),
    ],
)
def test_functions_that_build_or_wrap(lines: tuple[str, ...], expected: list[str], run: Run) -> None:
    assert shown(run("train.py", script(*lines) + FUNCTIONS, "PYT005")) == expected
