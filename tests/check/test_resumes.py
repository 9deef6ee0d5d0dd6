"""PYT003: what a script must take up again from its checkpoint, and what it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

SCRIPT = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, StepLR
dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
{before}
model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters())
scheduler = LambdaLR(optimizer, lambda n: 1.0)
start = 0
if os.path.exists("last.pt"):
    state = torch.load("last.pt", map_location="cpu")
    {load}
    start = state["epoch"] + 1
for epoch in range({range}):
    for x in [1, 2]:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    scheduler.step()
    if dist.get_rank() == 0:
        torch.save({{"epoch": epoch, "model": {weights}.state_dict(){parts}}}, "last.pt.tmp")
        os.replace("last.pt.tmp", "last.pt")
    dist.barrier()
"""
LOAD = "model.module.load_state_dict(state['model'])"
BOTH = ', "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()'
LOADS = (LOAD, "optimizer.load_state_dict(state['optimizer'])", "scheduler.load_state_dict(state['scheduler'])")


def script(
    *loads: str, parts: str = BOTH, weights: str = "model.module", before: str = "", loop: str = "start, 9"
) -> str:
    load = "\n    ".join(loads or LOADS)
    return SCRIPT.format(load=load, parts=parts, weights=weights, before=before, range=loop)


def loud(findings: list[Finding]) -> list[str]:
    return [finding.message for finding in findings if finding.level != "info"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (script(LOAD, parts=""), ["no state of optimizer", "no state of scheduler"]),
        (script(*LOADS[:2], parts=BOTH.split(', "sched')[0]), ["no state of scheduler"]),
        (script(*LOADS[:1]), ["optimizer is saved and never loaded", "scheduler is saved and never loaded"]),
        (script(LOADS[0], LOADS[2]), ["optimizer is saved and never loaded"]),
        (script(loop="9"), ["start is read"]),
        (script(weights="model", before="").replace("start", "epoch0"), ["a resume fails: model.state_dict is saved"]),
        (script("model.load_state_dict(state['model'])", *LOADS[1:]), ["a resume fails: model.module.state_dict"]),
    ],
)
def test_what_is_left_behind(run: Run, text: str, words: list[str]) -> None:
    messages = loud(run("train.py", text, "PYT003"))
    assert len(messages) == len(words)
    assert all(word in message for word, message in zip(words, messages, strict=True))


MADE, WITHOUT = "LambdaLR(optimizer, lambda n: 1.0)", script(*LOADS[:2], parts=BOTH.split(', "sched')[0])
RIGHT = [
    script(),
    script().replace("AdamW", "SGD").replace('"optimizer": optimizer.state_dict(), ', "").replace(LOADS[1], "pass"),
    WITHOUT.replace(MADE, "ExponentialLR(optimizer, 0.9)"),
    WITHOUT.replace(MADE, "StepLR(optimizer, 1)"),
    WITHOUT.replace("lambda n: 1.0)", "lambda n: 1.0, last_epoch=start)"),
    script(LOAD, parts="").replace('start = state["epoch"] + 1', "pass").replace("start, 9", "9"),
    script(LOAD, "restore(optimizer, scheduler)", parts=""),
    script(weights="model", before="").replace("model.module.load", "model.load"),
    script("model.load_state_dict({k.removeprefix('module.'): v for k, v in state['model'].items()})", *LOADS[1:]),
    script(loop="9").replace("start", "start_epoch").replace("range(9)", "range(9 - start_epoch)"),
    script(loop="9").replace("range(9)", "range(9)[start:]"),
    script(loop="9").replace("    for x in", "    if epoch < start:\n        continue\n    for x in"),
    script().replace("start = state", "best_epoch = state").replace("range(start, 9)", "range(9)"),
]  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_taken_up_again(run: Run, text: str) -> None:
    assert loud(run("train.py", text, "PYT003")) == []


def test_an_epoch_that_the_loop_itself_overwrites(run: Run) -> None:
    text = script(loop="9").replace('start = state["epoch"] + 1', 'epoch = state["epoch"]')
    (message,) = loud(run("train.py", text, "PYT003"))
    assert "epoch is read from the checkpoint" in message


# The same in functions of the script: one saves, one loads and returns the epoch at which the loop goes on.
FUNCTIONS = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer, epoch):
    torch.save({"net": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


def restore(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["net"])
    LOAD
    return state["epoch"] + 1


def main():
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    first = restore("last.pt", model, optimizer) if os.path.exists("last.pt") else 0
    for epoch in range(first, 90):
        model(1).backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            save("last.pt", model, optimizer, epoch)
        dist.barrier()


main()
"""


def test_a_function_that_is_given_the_optimizer_and_forgets_it(run: Run) -> None:
    plain = FUNCTIONS.replace(' if os.path.exists("last.pt") else 0', "")
    for text in (FUNCTIONS, plain):
        (message,) = loud(run("train.py", text.replace("LOAD", "pass"), "PYT003"))
        assert "the state of optimizer is saved and never loaded" in message


@pytest.mark.parametrize(
    "text",
    [
        FUNCTIONS.replace("LOAD", 'optimizer.load_state_dict(state["optimizer"])'),
        FUNCTIONS.replace("LOAD", "put_back(state, optimizer)"),
        FUNCTIONS.replace("LOAD", 'opt.load_state_dict(state["optimizer"])').replace(
            "def restore(path, model, optimizer)", "def restore(path, model, opt)"
        ),
        FUNCTIONS.replace("LOAD", "pass").replace(
            "        model(1)", "        tune(optimizer, epoch)\n        model(1)"
        ),
    ],
)
def test_a_function_that_takes_the_optimizer_up_again(run: Run, text: str) -> None:
    assert loud(run("train.py", text, "PYT003")) == []


# Saved by the wrapper's name, loaded by that of the model inside; a method that returns the epoch.
TWO_NAMES = FUNCTIONS.replace("LOAD", 'optimizer.load_state_dict(state["optimizer"])').replace(
    "    model = DDP(torch.nn.Linear(2, 2))", "    net = torch.nn.Linear(2, 2)\n    model = DDP(net)"
)
RAW = TWO_NAMES.replace("model.module.load_state_dict", "model.load_state_dict")
INTO_NET = RAW.replace('restore("last.pt", model', 'restore("last.pt", net')
ENDED = [
    (INTO_NET.replace("model.module.state_dict", "model.state_dict"), "model.state_dict is saved", "info"),
    (RAW, "model.module.state_dict is saved", "info"),
    (TWO_NAMES.replace("range(first, 90)", "range(0, 90)"), "first is read", "warning"),
    (TWO_NAMES.replace("range(first, 90)", "tqdm(range(90))"), "first is read", "warning"),
    (
        TWO_NAMES.replace("range(first, 90)", "range(90)").replace("first =", "model, first =").replace(
            "return state", "return model, state"
        ),
        "first is read",
        "warning",
    ),
    (
        script(weights="net", loop="start, 9").replace("model = torch", "net = torch").replace("DDP(model)", "DDP(net)")
        .replace("net.state_dict", "model.state_dict").replace("model.module.load", "net.load"),
        "model.state_dict is saved",
        "warning",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "level"), ENDED)
def test_what_functions_and_other_names_leave_behind(run: Run, text: str, words: str, level: str) -> None:
    (finding,) = run("train.py", text, "PYT003")
    assert words in finding.message
    assert finding.level == level


# The wrapped model's weights for the model inside, with a line that takes the prefix off.
CHANGED = INTO_NET.replace("model.module.state", "model.state").replace("{", "{{").replace("}", "}}")
CHANGED = CHANGED.replace(
    '    model.load_state_dict(state["net"])',
    '    weights = state["net"]\n    {}\n    model.load_state_dict(weights)',
)


def test_weights_that_are_only_read_keep_their_prefix(run: Run) -> None:
    for line in ("pass", "print(len(weights))", "first = weights['a'].shape"):
        assert [finding.level for finding in run("train.py", CHANGED.format(line), "PYT003")] == ["info"], line


@pytest.mark.parametrize(
    "text",
    [
        TWO_NAMES,
        INTO_NET,
        RAW.replace("model.module.state_dict", "model.state_dict"),
        TWO_NAMES.replace("range(first, 90)", "range(90)").replace("model(1)", "first or model(1)"),
        INTO_NET.replace("model.module.state", "model.state").replace('save("last.pt", model', 'save("last.pt", net'),
        INTO_NET.replace("model.module.state", "getattr(model, 'module', model).state"),
        INTO_NET.replace("model.module.state", "model.state").replace('["net"])', '["net"], strict=False)'),
        CHANGED.format("for key in list(weights):\n        weights[key[7:]] = weights.pop(key)"),
        CHANGED.format('for key in list(weights):\n        weights[key.split(".", 1)[1]] = weights.pop(key)'),
        CHANGED.format("without_prefix(weights)"),
        CHANGED.replace("weights)", 'state["net"])').format('state["net"] = without_prefix(state["net"])'),
    ],
)
def test_functions_and_other_names_that_fit(run: Run, text: str) -> None:
    assert not run("train.py", text, "PYT003")


ON_GPUS = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
net = DDP(torch.nn.Linear(2, 2).cuda())
adam = torch.optim.Adam(net.parameters())
begin = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")
    net.load_state_dict(saved["net"])
    adam.load_state_dict(saved["optim"])
    begin = saved["iteration"]
for number in range(begin, 900):
    net(1).backward()
    adam.step()
    adam.zero_grad()
    if number % 100 == 0 and dist.get_rank() == 0:
        torch.save({"net": net.state_dict(), "optim": adam.state_dict(), "iteration": number}, "last.pt")
"""


def test_a_checkpoint_that_all_ranks_load_onto_one_gpu(run: Run) -> None:
    states = '{"net": net.state_dict(), "optim": adam.state_dict(), "iteration": number}'
    again = f'saved = {states}\n        torch.save(saved, "last.pt")'
    for text in (
        ON_GPUS,
        ON_GPUS.replace('torch.load("last.pt")', 'torch.load("last.pt", weights_only=True)'),
        ON_GPUS.replace(f'torch.save({states}, "last.pt")', again),  # the name is another checkpoint's then
    ):
        (message,) = loud(run("train.py", text, "PYT003"))
        assert "every rank loads the checkpoint onto GPU 0" in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('torch.load("last.pt")', 'torch.load("last.pt", map_location=f"cuda:{local_rank}")'),
        ('torch.load("last.pt")', 'torch.load("last.pt", **options)'),
        ('    begin = saved["iteration"]', '    begin = saved["iteration"]\n    average = saved["average"]'),
        ('    begin = saved["iteration"]', "    begin = go_on(saved)"),
        ('    begin = saved["iteration"]', "    saved = go_on(saved)\n    begin = saved.iteration"),
        (
            '    begin = saved["iteration"]',
            '    begin = saved["iteration"]\n    if begin:\n        saved = {}\n    go_on(saved)',
        ),
        ('if os.path.exists("last.pt")', 'if os.path.exists("last.pt") and dist.get_rank() == 0'),
        ("torch.cuda.set_device(local_rank)", 'os.environ["CUDA_VISIBLE_DEVICES"] = str(local_rank)'),
        ('    adam.load_state_dict(saved["optim"])', '    adam.param_groups[0]["lr"] = saved["best_lr"]'),
    ],
)
def test_a_checkpoint_that_goes_where_it_belongs(run: Run, old: str, new: str) -> None:
    assert not [one for one in loud(run("train.py", ON_GPUS.replace(old, new), "PYT003")) if "GPU 0" in one]
