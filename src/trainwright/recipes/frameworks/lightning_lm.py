"""Pretraining of a causal language model with Lightning: a LightningModule and a Trainer over DDP or FSDP."""

from __future__ import annotations

from typing import Any

import hf_models
import run
from entry_common import learning_rate, options, parsed, remove_old, samples_of, saved_steps


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--strategy", choices=("ddp", "fsdp"), default="ddp")
    given = parsed(parser)
    run.listen()

    import lightning
    import torch
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment

    here = run.place()
    gpu = torch.cuda.is_available()
    trainer = lightning.Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=here.local_world_size,
        num_nodes=here.world_size // here.local_world_size,
        strategy=given.strategy,
        plugins=[TorchElasticEnvironment()],
        max_steps=given.steps,
        accumulate_grad_batches=given.accumulate,
        gradient_clip_val=given.clip,
        precision="bf16-mixed" if given.precision == "bf16" else "32-true",
        enable_checkpointing=False,  # the module saves, after the same step on every rank
        logger=False,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = hf_models.sequences(given, hf_models.tokenizer(given.model))
    steps = saved_steps(given.checkpoint, ".ckpt")
    module = module_of(given)
    newest = str(given.checkpoint / f"step-{steps[-1]}.ckpt") if steps else None
    trainer.fit(module, Batches(data, given, module), ckpt_path=newest)
    if trainer.global_step < given.steps:
        run.exit_saved()
    run.finish(trainer.global_step)


class Batches:
    """The micro batches of this rank, from the step that the module has reached."""

    def __init__(self, data: list[dict[str, list[int]]], given: Any, module: Any) -> None:
        self.data, self.given, self.module = data, given, module

    def __iter__(self) -> Any:
        import torch

        for step in range(self.module.trainer.global_step + 1, self.given.steps + 1):
            mine = samples_of(step, len(self.data), self.given)
            for start in range(0, len(mine), self.given.micro_batch):
                yield torch.tensor([self.data[i]["input_ids"] for i in mine[start : start + self.given.micro_batch]])


def save(trainer: Any, given: Any) -> None:
    """Lightning writes the file whole or not at all; the oldest ones go."""
    trainer.save_checkpoint(given.checkpoint / f"step-{trainer.global_step}.ckpt")
    if trainer.is_global_zero:
        remove_old(given.checkpoint, given.keep, ".ckpt")


def module_of(given: Any) -> Any:
    import lightning
    import torch

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = hf_models.new_model(given)
            self.losses: list[torch.Tensor] = []

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(input_ids=batch, labels=batch).loss
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(
                self.parameters(), lr=given.lr, betas=(given.beta1, given.beta2), weight_decay=given.weight_decay
            )
            schedule = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda done: learning_rate(done + 1, given) / given.lr
            )
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        def on_train_batch_end(self, *_: Any) -> None:
            if len(self.losses) < given.accumulate:
                return
            loss = self.trainer.strategy.reduce(torch.stack(self.losses).mean(), reduce_op="mean").item()
            self.losses.clear()
            run.progress(self.trainer.global_step, loss, total=given.steps)
            step, stop = self.trainer.global_step, run.should_stop()
            if stop or step % given.checkpoint_steps == 0 or step == given.steps:
                save(self.trainer, given)
            self.trainer.should_stop = self.trainer.should_stop or stop

    return Module()


if __name__ == "__main__":
    main()
