"""Data parallel training of a small classifier in plain PyTorch. Data: a folder with MNIST's four idx files; built in:
noisy drawings of ten fixed shapes. One rank writes, the optimizer is saved, and a restart repeats no step."""

from __future__ import annotations

import gzip
import os
from argparse import Namespace
from pathlib import Path

import run
import torch
import torch.distributed as dist
from entry_common import is_builtin, learning_rate, options, parsed, remove_old, samples_of, saved_steps
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = options(__doc__ or "")
    given = parsed(parser)
    if given.recompute != "none":
        parser.error("two layers have nothing to recompute")
    run.listen()
    gpu = torch.cuda.is_available()
    here = run.place()
    device = torch.device("cuda", here.local_rank) if gpu else torch.device("cpu")
    dist.init_process_group("nccl" if gpu else "gloo")
    images, labels = shapes(given.seed) if is_builtin(given.data) else mnist(Path(given.data))

    torch.manual_seed(given.seed)
    width = 256 if given.model == "mlp" else 32
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=given.lr, betas=(given.beta1, given.beta2), weight_decay=given.weight_decay
    )
    done = load(given.checkpoint, model, optimizer, device)

    for step in range(done + 1, given.steps + 1):
        mine = samples_of(step, len(labels), given)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, given)
        with torch.autocast(device.type, torch.bfloat16, enabled=given.precision == "bf16"):
            loss = cross_entropy(model(images[mine].to(device)), labels[mine].to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), given.clip)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        run.progress(step, mean.item() / here.world_size, total=given.steps, lr=optimizer.param_groups[0]["lr"])
        stop = run.should_stop()
        if stop or step % given.checkpoint_steps == 0 or step == given.steps:
            save(given, model, optimizer, step)
        if stop and step < given.steps:
            run.exit_saved()
    run.finish(given.steps)
    dist.destroy_process_group()


def save(given: Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Rank 0 writes under another name and then renames: a file with a step's name is whole."""
    if dist.get_rank() == 0:
        unfinished = given.checkpoint / "unfinished.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unfinished)
        os.replace(unfinished, given.checkpoint / f"step-{step}.pt")
        remove_old(given.checkpoint, given.keep, ".pt")
    dist.barrier()


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Fill model and optimizer from the newest checkpoint; the number of steps that are done."""
    steps = saved_steps(folder, ".pt")
    if not steps:
        return 0
    state = torch.load(folder / f"step-{steps[-1]}.pt", map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def mnist(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of MNIST's idx files, plain or gzipped."""
    images = _bytes(folder, "train-images*idx3-ubyte*")[16:].view(-1, 1, 28, 28).float() / 255
    return images, _bytes(folder, "train-labels*idx1-ubyte*")[8:].long()


def _bytes(folder: Path, pattern: str) -> torch.Tensor:
    path = next(iter(sorted(folder.glob(pattern))), None)
    if path is None:
        raise SystemExit(f"{folder} holds no {pattern}")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def shapes(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.rand(10, 1, 28, 28, generator=dice)
    labels = torch.randint(10, (4000,), generator=dice)
    return kinds[labels] + 0.5 * torch.randn(4000, 1, 28, 28, generator=dice), labels


if __name__ == "__main__":
    main()
