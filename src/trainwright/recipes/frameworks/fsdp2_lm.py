"""Pretraining of a causal language model with FSDP2 in plain PyTorch: each layer is sharded over the ranks, checkpoints
are sharded too (DCP), and a restart loads weights and optimizer, not only the step counter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hf_models
import run
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from entry_common import learning_rate, options, parsed, remove_old, samples_of, saved_steps
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WHOLE = "/.metadata"  # DCP writes it last: a folder that has it is whole


def main() -> None:
    given = parsed(options(__doc__ or ""))
    run.listen()
    gpu = torch.cuda.is_available()
    here = run.place()
    device = torch.device("cuda", here.local_rank) if gpu else torch.device("cpu")
    dist.init_process_group("nccl" if gpu else "gloo")
    data = hf_models.sequences(given, hf_models.tokenizer(given.model))

    model = sharded(hf_models.new_model(given).to(device), given.precision)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=given.lr, betas=(given.beta1, given.beta2), weight_decay=given.weight_decay
    )
    done = load(given.checkpoint, model, optimizer)
    for step in range(done + 1, given.steps + 1):
        loss = one_step(step, model, optimizer, data, device, given)
        run.progress(step, loss, total=given.steps, lr=optimizer.param_groups[0]["lr"])
        stop = run.should_stop()
        if stop or step % given.checkpoint_steps == 0 or step == given.steps:
            save(given.checkpoint, model, optimizer, step, given.keep)
        if stop and step < given.steps:
            run.exit_saved()
    run.finish(given.steps)
    dist.destroy_process_group()


def sharded(model: Any, precision: str) -> Any:
    """Shard layer by layer, then what is outside the layers."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if precision == "bf16" else MixedPrecisionPolicy()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def one_step(step: int, model: Any, optimizer: Any, data: Any, device: torch.device, given: Any) -> float:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, given)
    total = torch.zeros((), device=device)
    mine = samples_of(step, len(data), given)
    for start in range(0, len(mine), given.micro_batch):
        batch = torch.tensor([data[i]["input_ids"] for i in mine[start : start + given.micro_batch]], device=device)
        model.set_requires_gradient_sync(start + given.micro_batch >= len(mine))
        loss = model(input_ids=batch, labels=batch).loss / given.accumulate
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), given.clip)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def save(folder: Path, model: Any, optimizer: Any, step: int, keep: int) -> None:
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=str(folder / f"step-{step}"))
    if dist.get_rank() == 0:
        remove_old(folder, keep, WHOLE)
    dist.barrier()


def load(folder: Path, model: Any, optimizer: Any) -> int:
    """Fill the state of this model from the newest checkpoint; the number of steps that are done."""
    steps = saved_steps(folder, WHOLE)
    if not steps:
        return 0
    weights, state = get_state_dict(model, optimizer)  # DCP fills only the keys it is given
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=str(folder / f"step-{steps[-1]}"))
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return steps[-1]


if __name__ == "__main__":
    main()
