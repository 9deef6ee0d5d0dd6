"""PYT006: training steps that train on other gradients than they computed, as torch itself shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

HEAD = """import torch
import torch.distributed as dist
from torch.cuda.amp import GradScaler
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

def main(args, net, loader, valid):
    dist.init_process_group("nccl")
    model = {wrap}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = GradScaler()
"""
ZERO, BACK, STEP = "optimizer.zero_grad()", "model(x).sum().backward()", "optimizer.step()"
SCALED, CLIP = "scaler.scale(model(x).sum()).backward()", "clip_grad_norm_(model.parameters(), 1.0)"
SCALER = ("scaler.step(optimizer)", "scaler.update()")


def script(*lines: str, before: tuple[str, ...] = (), after: tuple[str, ...] = (), wrap: str = "DDP(net)") -> str:
    """A script whose line 15 is the first of the loop over batches."""
    inside = [*before, "for epoch in range(args.epochs):", "    for i, x in enumerate(loader):"]
    inside += [f"        {line}" for line in lines] + [f"    {line}" for line in after]
    return HEAD.format(wrap=wrap) + "".join(f"    {line}\n" for line in inside)


RARELY = ("if (i + 1) % args.accum == 0:", f"    {STEP}")
WRONG = [
    (script(SCALED, CLIP, *SCALER, ZERO), "warning PYT006 17"),
    (script(SCALED, CLIP, "scaler.unscale_(optimizer)", *SCALER, ZERO), "warning PYT006 17"),
    (script(ZERO, SCALED, STEP), "error PYT006 18"),
    (script(ZERO, SCALED, SCALER[0]), "error PYT006 18"),
    (script(BACK, ZERO, STEP), "error PYT006 17"),
    (script(BACK, ZERO, CLIP, STEP), "error PYT006 17"),
    (script(ZERO, BACK, *RARELY), "warning PYT006 16"),
    (script(ZERO, "last = (i + 1) % 8 == 0", BACK, "if last:", f"    {STEP}"), "warning PYT006 16"),
    (script(ZERO, BACK, "if (i + 1) % 8:", "    continue", STEP), "warning PYT006 16"),
    (script("for y in x:", f"    {ZERO}", f"    {BACK}", STEP), "warning PYT006 17"),
    (script(BACK, STEP), "warning PYT006 17"),
    (script(ZERO, BACK, STEP, CLIP), "warning PYT006 19"),
    (script(ZERO, CLIP, BACK, STEP), "warning PYT006 17"),
    (script(ZERO, BACK, CLIP, STEP, wrap="FSDP(net)"), "warning PYT006 18"),
    (script(ZERO, "model.module(x).sum().backward()", STEP), "warning PYT006 17"),
    (script(ZERO, "out = model.module(x)", "out.backward()", STEP), "warning PYT006 17"),
    (script(ZERO, "loss = model.module.loss(x)", "loss.backward()", STEP), "warning PYT006 17"),
    (script(ZERO, "out = net(x)", "out.backward()", STEP), "warning PYT006 17"),
    (script(ZERO, BACK, STEP, after=("model.eval()", "model(1)")), "warning PYT006 19"),
    (script(ZERO, BACK, STEP, before=("model.train()",), after=("model.eval()", "model(1)")), "warning PYT006 20"),
]
RIGHT = [
    script(ZERO, BACK, CLIP, STEP),
    script(ZERO, SCALED, "scaler.unscale_(optimizer)", CLIP, *SCALER),
    script(ZERO, SCALED, *SCALER),
    script(ZERO, SCALED, "clip_grad_norm_(model.parameters(), scaler.get_scale())", *SCALER),
    script(SCALED, CLIP, *SCALER, ZERO).replace("GradScaler()", "GradScaler(enabled=False)"),
    script(SCALED, "if args.clip:", "    scaler.unscale_(optimizer)", f"    {CLIP}", *SCALER, ZERO),
    script(ZERO, SCALED, SCALER[0], "finish(scaler)"),
    script(BACK, *RARELY, f"    {ZERO}"),
    script("if i % args.accum == 0:", f"    {ZERO}", BACK, *RARELY),
    script(BACK, "if (i + 1) % 8:", "    continue", STEP, ZERO),
    script(ZERO, "for y in x:", f"    {BACK}", STEP),
    script(ZERO, BACK, "if args.ready:", f"    {STEP}"),
    script(ZERO, BACK, "other.zero_grad()", STEP),
    script("for p in model.parameters():", "    p.grad = None", BACK, STEP),
    script(BACK, STEP, "model.zero_grad()"),
    script(ZERO, BACK, "model.clip_grad_norm_(1.0)", STEP, wrap="FSDP(net)"),
    script(ZERO, BACK, CLIP, STEP, wrap="FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)"),
    script(ZERO, BACK, CLIP, STEP, wrap="FSDP(net, sharding_strategy=args.strategy)"),
    script(ZERO, BACK, STEP, after=("torch.save(model.module.state_dict(), args.out)",)),
    script(ZERO, BACK, STEP, after=("with torch.no_grad():", "    out = model.module(1)")),
    script(ZERO, "out = model.module(x)", "out.backward()", "dist.all_reduce(net.weight.grad)", STEP),
    script(ZERO, "out = net(x)", "out.backward()", STEP, before=("train(model)",)),
    script("model.train()", ZERO, BACK, STEP, after=("model.eval()", "model(1)")),
    script(ZERO, BACK, STEP, after=("model.eval()", "model(1)", "model.train()")),
    script(ZERO, BACK, STEP, after=("teacher.eval()",)),
    script("model.eval()", ZERO, BACK, STEP),
]


@pytest.mark.parametrize(("text", "line"), WRONG)
def test_a_step_that_trains_on_other_gradients(run: Run, text: str, line: str) -> None:
    assert shown(run("train.py", text, "PYT006")) == [line]


@pytest.mark.parametrize("text", RIGHT)
def test_a_step_that_trains(run: Run, text: str) -> None:
    assert run("train.py", text, "PYT006") == []


def schedule(made: str, *, each: bool) -> str:
    step = "scheduler.step()"
    lines = (ZERO, BACK, STEP, step) if each else (ZERO, BACK, STEP)
    return script(*lines, before=(f"scheduler = {made}",), after=() if each else (step,))


@pytest.mark.parametrize(
    ("made", "each"),
    [
        ("CosineAnnealingLR(optimizer, T_max=args.epochs)", True),
        ("CosineAnnealingLR(optimizer, args.epochs)", True),
        ("OneCycleLR(optimizer, 0.1, total_steps=args.epochs)", True),
        ("CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))", False),
        ("OneCycleLR(optimizer, 0.1, epochs=args.epochs, steps_per_epoch=len(loader))", False),
    ],
)
def test_a_schedule_of_the_wrong_length(run: Run, made: str, each: bool) -> None:
    assert shown(run("train.py", schedule(made, each=each), "PYT006")) == ["warning PYT006 14"]
    assert run("train.py", schedule(made, each=not each), "PYT006") == []


def test_a_function_that_validates_leaves_the_model_in_eval_mode(run: Run) -> None:
    head = HEAD.format(wrap="DDP(net)")
    functions = (
        "def fit(m, data, opt):\n    for x in data:\n        opt.zero_grad()\n        m(x).backward()\n"
        "        opt.step()\ndef check(m, data):\n    m.eval()\n    return m(data)\n"
    )
    loop = "    for epoch in range(9):\n        fit(model, loader, optimizer)\n        check(model, valid)\n"
    (finding,) = run("train.py", functions + head + loop, "PYT006")
    assert "model stays in eval mode" in finding.message
    right = functions.replace("    for x in data:", "    m.train()\n    for x in data:")
    assert run("train.py", right + head + loop, "PYT006") == []


AROUND = (ZERO, "scores = model.module(x)", "scores.mean().backward()", STEP)
CHECKING = """def check(net, batches):
    net.eval()
    with torch.no_grad():
        scores = [net(one) for one in batches]
    net.train()
    return scores

def keep(where, net):
    torch.save(net.module.state_dict(), where)

"""


@pytest.mark.parametrize(
    ("functions", "after", "count"),
    [
        (CHECKING, ("check(model, valid)", "keep('last.pt', model)"), 1),
        (CHECKING, ("check(net=model, batches=valid)",), 1),
        ("", ("with torch.inference_mode():", "    model(valid)"), 1),
        ("@torch.no_grad()\ndef check(net):\n    return net(1)\n", ("check(model)",), 1),
        (CHECKING.replace("    with torch.no_grad():", "    if batches:"), ("check(model, valid)",), 0),
        ("def check(net):\n    return (lambda one: net(one))(1)\n", ("check(model)",), 0),
        ("def check(net):\n    tune(net)\n", ("check(model)",), 0),
        ("def check(net):\n    return net\n", ("check(model)",), 0),
        ("from engine import check\n", ("check(model, valid)",), 0),
        (CHECKING, ("check(model, valid)", "model(valid).backward()"), 0),
    ],
)
def test_a_pass_around_the_wrapper_beside_its_validation(
    run: Run, functions: str, after: tuple[str, ...], count: int
) -> None:
    findings = run("train.py", functions + script(*AROUND, after=after), "PYT006")
    assert [one.message for one in findings if "goes around" in one.message] == [
        "model.module(…) goes around DistributedDataParallel: gradients are not averaged"
    ] * count


@pytest.mark.parametrize(
    "lines",
    [
        (ZERO, "with model.no_sync():", "    scores = model.module(x)", "    scores.mean().backward()", STEP),
        (ZERO, "with torch.no_grad():", "    target = model.module(x)", BACK, STEP),
        (ZERO, "out = model.module(x)", "out.backward()", "x = x + x.grad.sign()", BACK, STEP),
    ],
)
def test_right_passes_through_the_model_inside(run: Run, lines: tuple[str, ...]) -> None:
    assert run("train.py", script(*lines), "PYT006") == []


COSINE = "scheduler = CosineAnnealingLR(optimizer, T_max={})"


@pytest.mark.parametrize(
    ("length", "lines", "count"),
    [
        ("args.epochs", ("if (i + 1) % args.accum == 0:", f"    {STEP}", "    scheduler.step()", f"    {ZERO}"), 1),
        (
            "args.epochs",
            ("if i % 4 == 3 or i + 1 == len(loader):", f"    {STEP}", f"    {ZERO}", "    scheduler.step()"),
            1,
        ),
        ("rounds", (STEP, ZERO, "scheduler.step()"), 1),
        ("args.epochs * len(loader) // 4", ("if i % 4 == 3:", f"    {STEP}", "    scheduler.step()", f"    {ZERO}"), 0),
        ("args.epochs", (STEP, ZERO, "if i + 1 == len(loader):", "    scheduler.step()"), 0),
        ("args.epochs", ("if (i + 1) % len(loader) == 0:", f"    {STEP}", "    scheduler.step()", f"    {ZERO}"), 0),
        ("args.epochs", (STEP, ZERO, "if i % args.log == 0:", "    scheduler.step()"), 0),
        ("args.epochs", (STEP, ZERO, "scheduler.step(epoch + i / len(loader))"), 0),
    ],
)
def test_a_schedule_that_advances_with_the_optimizer(run: Run, length: str, lines: tuple[str, ...], count: int) -> None:
    text = script(BACK, *lines, before=("rounds = args.epochs", COSINE.format(length)))
    assert len([one for one in run("train.py", text, "PYT006") if "scheduler" in one.message]) == count
