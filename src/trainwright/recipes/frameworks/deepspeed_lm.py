"""Pretraining of a causal language model with DeepSpeed's engine: ZeRO 1, 2 or 3, its own optimizer, schedule and
checkpoints. The configuration is built from the job's values, so that the batch sizes in it cannot disagree."""

from __future__ import annotations

import argparse
from typing import Any

import hf_models
import run
from entry_common import learning_rate, options, parsed, remove_old, samples_of


def config(given: argparse.Namespace) -> dict[str, Any]:
    """DeepSpeed's configuration. steps_per_print is stated: without it 0.19 prints no step at all. Adam is PyTorch's:
    DeepSpeed's own would be compiled at the start of the job with nvcc, which a slim image does not have."""
    return {
        "train_batch_size": given.batch,
        "train_micro_batch_size_per_gpu": given.micro_batch,
        "gradient_accumulation_steps": given.accumulate,
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": given.lr,
                "betas": [given.beta1, given.beta2],
                "weight_decay": given.weight_decay,
                "torch_adam": True,
            },
        },
        "zero_optimization": {"stage": given.zero_stage},
        "bf16": {"enabled": given.precision == "bf16"},
        "gradient_clipping": given.clip,
        "steps_per_print": 1,
    }


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--zero-stage", type=int, choices=range(4), default=1)
    given = parsed(parser)
    run.listen()

    import deepspeed
    import torch
    from transformers.integrations import HfDeepSpeedConfig

    gpu = torch.cuda.is_available()
    if not gpu:  # gloo does its work; to build it takes a compiler and a minute
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if gpu else "gloo")
    settings = config(given)
    _sharded = HfDeepSpeedConfig(settings) if given.zero_stage == 3 else None  # while it lives, models are born sharded
    model = hf_models.new_model(given)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    data = hf_models.sequences(given, hf_models.tokenizer(given.model))

    first = resume(engine, given) + 1
    for step in range(first, given.steps + 1):
        lr = learning_rate(step, given)
        for group in optimizer.param_groups:
            group["lr"] = lr
        losses = []
        mine = samples_of(step, len(data), given)
        for start in range(0, len(mine), given.micro_batch):
            rows_now = [data[index]["input_ids"] for index in mine[start : start + given.micro_batch]]
            batch = torch.tensor(rows_now, device=engine.device)
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach().float())
        mean = torch.stack(losses).mean()
        torch.distributed.all_reduce(mean, op=torch.distributed.ReduceOp.SUM)
        run.progress(step, mean.item() / engine.world_size, total=given.steps, lr=lr)
        stop = run.should_stop()
        if stop or step % given.checkpoint_steps == 0 or step == given.steps:
            # Every rank saves its part; `latest` is written last and names a whole checkpoint.
            engine.save_checkpoint(str(given.checkpoint), tag=f"step-{step}", client_state={"step": step})
            if run.place().rank == 0:
                remove_old(given.checkpoint, given.keep)
        if stop and step < given.steps:
            run.exit_saved()
    run.finish(given.steps)


def resume(engine: Any, given: argparse.Namespace) -> int:
    """Load the checkpoint that `latest` names; the number of steps that are done."""
    if not (given.checkpoint / "latest").is_file():
        return 0
    _, state = engine.load_checkpoint(str(given.checkpoint))
    return int(state["step"])


if __name__ == "__main__":
    main()
