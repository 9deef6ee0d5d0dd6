"""Fixes for training programs that are followed to the letter: they are for what the program has, and where the
corrected program stands beside it, `check` has nothing more to say. No test runs torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import rows

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

STEP = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_
def main(args, net, other, loader):
    dist.init_process_group("nccl")
    model = DDP(net)
    discriminator = DDP(other)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    second = torch.optim.AdamW(discriminator.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(args.epochs):
        for i, x in enumerate(loader):
{}
"""
SCALED, CLIP = "scaler.scale(model(x).sum()).backward()", "clip_grad_norm_(model.parameters(), 1.0)"
UNSCALE, TAKEN, UPDATE = "scaler.unscale_(optimizer)", "scaler.step(optimizer)", "scaler.update()"
ZERO, BACK, TAKE = "optimizer.zero_grad()", "model(x).sum().backward()", "optimizer.step()"
RARELY = "if (i + 1) % 4 == 0:"
SECOND = ("second.zero_grad()", "scaler.scale(discriminator(x).sum()).backward()", "scaler.step(second)")


def step(*lines: str) -> str:
    return STEP.format("\n".join(f"            {line}" for line in lines))


@pytest.mark.parametrize(
    ("lines", "fix", "fixed"),
    [
        (
            (ZERO, SCALED, CLIP, TAKEN, UPDATE),
            "call scaler.unscale_(optimizer) before it",
            (ZERO, SCALED, UNSCALE, CLIP, TAKEN, UPDATE),
        ),
        # unscale_ a second time before the step raises RuntimeError.
        (
            (ZERO, SCALED, CLIP, UNSCALE, TAKEN, UPDATE),
            "move scaler.unscale_(optimizer) above it",
            (ZERO, SCALED, UNSCALE, CLIP, TAKEN, UPDATE),
        ),
        (
            (SCALED, CLIP, RARELY, f"    {TAKEN}", f"    {UPDATE}", f"    {ZERO}"),
            "move it to the line before scaler.step, and call scaler.unscale_(optimizer) above it",
            (SCALED, RARELY, *(f"    {line}" for line in (UNSCALE, CLIP, TAKEN, UPDATE, ZERO))),
        ),
        (
            (ZERO, SCALED, CLIP, TAKEN, *SECOND, UPDATE),
            "call scaler.unscale_(optimizer) before it",
            (ZERO, SCALED, UNSCALE, CLIP, TAKEN, *SECOND, UPDATE),
        ),
        (
            (ZERO, SCALED, TAKEN, UPDATE, CLIP),
            "clip between backward and the step, below scaler.unscale_(optimizer)",
            (ZERO, SCALED, UNSCALE, CLIP, TAKEN, UPDATE),
        ),
        ((ZERO, BACK, TAKE, CLIP), "clip between backward and the step", (ZERO, BACK, CLIP, TAKE)),
        # update a second time raises AssertionError.
        (
            (ZERO, SCALED, TAKE, UPDATE),
            "call scaler.step(optimizer) instead",
            (ZERO, SCALED, TAKEN, UPDATE),
        ),
        (
            (ZERO, SCALED, TAKE),
            "call scaler.step(optimizer) instead, and scaler.update() after it",
            (ZERO, SCALED, TAKEN, UPDATE),
        ),
        # before each backward, the micro-batches before the last would be lost.
        (
            (BACK, RARELY, f"    {TAKE}"),
            "call optimizer.zero_grad() after the step",
            (BACK, RARELY, f"    {TAKE}", f"    {ZERO}"),
        ),
        (
            (BACK, "scheduler.step()", TAKE, "discriminator(x).sum().backward()", "second.step()"),
            "call optimizer.zero_grad() and second.zero_grad() after the step",
            (
                BACK,
                TAKE,
                "discriminator(x).sum().backward()",
                "second.step()",
                ZERO,
                "second.zero_grad()",
                "scheduler.step()",
            ),
        ),
        (
            (ZERO, "loss = model.module(x)", "loss.backward()", TAKE),
            "call model(…) instead",
            (ZERO, "loss = model(x)", "loss.backward()", TAKE),
        ),
        (
            (ZERO, "loss = model.module.loss(x)", "loss.backward()", TAKE),
            "call model(…) instead, and let forward of its class do what loss does",
            (ZERO, "loss = model(x)", "loss.backward()", TAKE),
        ),
    ],
)
def test_the_fix_of_a_step(run: Run, lines: tuple[str, ...], fix: str, fixed: tuple[str, ...]) -> None:
    assert [one.fix for one in run("train.py", step(*lines), "PYT006")] == [fix]
    assert run("train.py", step(*fixed), "PYT006") == []


def test_the_scaler_is_updated_after_its_last_step(run: Run) -> None:
    lines = (ZERO, SCALED, TAKEN, *SECOND)
    (finding,) = run("train.py", step(*lines), "PYT006")
    assert (finding.fix, finding.span.line) == ("call scaler.update() after it", 20)
    assert run("train.py", step(*lines, UPDATE), "PYT006") == []


@pytest.mark.parametrize(
    ("loop", "indent", "fix"),
    [
        ("for epoch in range(3):", 8, "at the start of every epoch"),
        ("for epoch in range(3):", 12, "where the validation ends"),  # the same epoch trains on
        ("while True:", 8, "where the validation ends"),
    ],
)
def test_a_model_trains_on_after_its_validation(run: Run, loop: str, indent: int, fix: str) -> None:
    def text(first: str, last: str) -> str:
        training = step(ZERO, BACK, TAKE).replace("for epoch in range(args.epochs):", loop + first)
        return training + "".join(f"{' ' * indent}{line}\n" for line in ("model.eval()", "print(model(x))", last))

    assert [one.fix for one in run("train.py", text("", ""), "PYT006")] == [f"call model.train() {fix}"]
    fixed = text("\n        model.train()", "") if "start" in fix else text("", "model.train()")
    assert run("train.py", fixed, "PYT006") == []


def test_a_schedule_holds_no_parameters_itself(run: Run) -> None:
    """The optimizer that is built too early is named, and what is built from it goes with it."""
    text = (
        "import torch, torch.distributed as dist\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "dist.init_process_group('nccl')\n"
        "def main(model, loader):\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n"
        "    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)\n"
        "    model = FSDP(model)\n"
        "    for x in loader:\n"
        "        model(x).sum().backward()\n"
        "        optimizer.step()\n"
        "        schedule.step()\n"
    )
    (finding,) = run("train.py", text, "PYT005")
    assert finding.span.line == 5
    assert finding.message.startswith("optimizer holds parameters")
    assert finding.fix == "build it below line 7, and what is built from it below that"
    lines = text.splitlines(keepends=True)
    assert run("train.py", "".join([*lines[:4], lines[6], *lines[4:6], *lines[7:]]), "PYT005") == []


@pytest.mark.parametrize(
    ("read", "fix"), [("", "; add 1 where the saved number is of a finished epoch"), (" + 1", "range(start, 10)")]
)
def test_one_is_added_to_the_saved_epoch_once(run: Run, read: str, fix: str) -> None:
    text = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "def main(model, loader):\n"
        "    state = torch.load('last.pt', map_location='cpu')\n"
        f"    start = state['epoch']{read}\n"
        "    for epoch in range(10):\n"
        "        for x in loader:\n"
        "            model(x).sum().backward()\n"
    )
    (finding,) = run("train.py", text, "PYT003")
    assert fix in finding.fix
    assert finding.fix.count("1 where") == (not read)
    fixed = text.replace("['epoch']\n", "['epoch'] + 1\n").replace("range(10)", "range(start, 10)")
    assert run("train.py", fixed, "PYT003") == []


SAVES = """import torch, torch.distributed as dist
{}
def main(net, loader):
    dist.init_process_group("nccl")
    model = {}(net)
    for x in loader:
        model(x).sum().backward()
    torch.save(model.state_dict(), "last.pt")
main(net, loader)
"""


def test_files_of_one_mistake_and_two_fixes_are_two_findings(tmp_path: Path) -> None:
    sharded = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"
    (tmp_path / "a.py").write_text(SAVES.format(sharded, "FSDP"))
    (tmp_path / "b.py").write_text(SAVES.format("from torch.nn.parallel import DistributedDataParallel as DDP", "DDP"))
    findings = [row for row in rows(tmp_path) if row["code"] == "PYT002"]
    assert [row["fix"].startswith("call state_dict() on every rank") for row in findings] == [True, False]


def test_lines_that_one_finding_joins_keep_their_own_fix(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n    - name: a\n      image: a\n"
        "      resources:\n        limits:\n          nvidia.com/gpu: 1\n          memory: 64GB\n"
        "    - name: b\n      image: a\n      resources:\n        limits:\n          memory: 32GB\n"
    )
    (finding,) = (row for row in rows(tmp_path) if row["code"] == "K8S006")
    assert finding["fix"] == "write 64Gi; in line 16: write 32Gi"


@pytest.mark.parametrize(("data", "level"), [("torch.randn(8, 4)", "info"), ("torch.load(args.data)", "warning")])
def test_a_measurement_trains_nothing(run: Run, data: str, level: str) -> None:
    """The gradients of a benchmark, whose one batch is random, may add up."""
    text = (
        "import torch, time, torch.distributed as dist\n"
        "def main(args, model):\n"
        "    dist.init_process_group('nccl')\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"    x = {data}\n"
        "    for i in range(100):\n"
        "        model(x).sum().backward()\n"
        "        optimizer.step()\n"
    )
    assert [one.level for one in run("bench.py", text, "PYT006")] == [level]
