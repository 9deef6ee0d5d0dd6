"""Pretraining of a causal language model in a plain accelerate loop: Accelerator wraps model, optimizer and scheduler,
save_state keeps all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import hf_models
import run
from entry_common import learning_rate, options, parsed, remove_old, samples_of, saved_steps


def main() -> None:
    given = parsed(options(__doc__ or ""))
    run.listen()

    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(
        gradient_accumulation_steps=given.accumulate, cpu=not torch.cuda.is_available(),
        mixed_precision="bf16" if given.precision == "bf16" else "no",
    )  # fmt: skip
    model = hf_models.new_model(given)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=given.lr, betas=(given.beta1, given.beta2), weight_decay=given.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: learning_rate(done + 1, given) / given.lr)
    # The schedule is not prepared: accelerate would advance it once per rank.
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(schedule)
    tokens = hf_models.tokenizer(given.model)
    data = hf_models.sequences(given, tokens)

    first = resume(accelerator, given.checkpoint) + 1
    for step in range(first, given.steps + 1):
        losses = []
        mine = samples_of(step, len(data), given)
        for start in range(0, len(mine), given.micro_batch):
            rows_now = [data[index]["input_ids"] for index in mine[start : start + given.micro_batch]]
            batch = torch.tensor(rows_now, device=accelerator.device)
            with accelerator.accumulate(model):
                loss = model(input_ids=batch, labels=batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), given.clip)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        loss_now = accelerator.reduce(torch.stack(losses).mean(), "mean").item()
        run.progress(step, loss_now, total=given.steps, lr=schedule.get_last_lr()[0])
        schedule.step()
        stop = run.should_stop()
        if stop or step % given.checkpoint_steps == 0 or step == given.steps:
            save(accelerator, given.checkpoint, step, given.keep)
        if stop and step < given.steps:
            run.exit_saved()
    run.finish(given.steps)
    accelerator.end_training()


def save(accelerator: object, folder: Path, step: int, keep: int) -> None:
    """Save beside, then rename: a folder with a step's name is whole."""
    unfinished = folder / f"unfinished-{step}"
    accelerator.save_state(str(unfinished))  # type: ignore[attr-defined]
    accelerator.wait_for_everyone()  # type: ignore[attr-defined]
    if run.place().rank == 0:
        target = folder / f"step-{step}"
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
        remove_old(folder, keep)
    accelerator.wait_for_everyone()  # type: ignore[attr-defined]


def resume(accelerator: object, folder: Path) -> int:
    """Load the newest checkpoint; the number of steps that are done."""
    done = max(saved_steps(folder), default=0)
    if done:
        accelerator.load_state(str(folder / f"step-{done}"))  # type: ignore[attr-defined]
    return done


if __name__ == "__main__":
    main()
