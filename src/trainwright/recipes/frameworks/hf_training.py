"""What a program around the Hugging Face Trainer needs: to save, resume, log every step and stop when asked to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import entry_common
import run


def options(what: str) -> argparse.ArgumentParser:
    parser = entry_common.options(what)
    parser.add_argument("--fsdp", action="store_true", help="shard weights and optimizer over the ranks")
    return parser


def arguments(given: argparse.Namespace) -> dict[str, Any]:
    """TrainingArguments by name. Steps, warm-up and checkpoints come from the job, so that no default hides them: with
    the Trainer's own save_steps of 500 a shorter run would never save."""
    import torch

    cpu = not torch.cuda.is_available()
    if cpu and given.fsdp:
        raise SystemExit("--fsdp needs GPUs: on CPUs accelerate ignores it and replicates the weights")
    # Its own linear schedule ends at zero, whatever the job says: a decay over the whole run does not.
    shapes = {"cosine": "cosine_with_min_lr", "linear": "warmup_stable_decay", "constant": "constant_with_warmup"}
    down = {"num_decay_steps": given.steps - given.warmup, "decay_type": "linear", "min_lr_ratio": given.final}
    kwargs = {"cosine": {"min_lr_rate": given.final}, "linear": down, "constant": {}}
    return {
        "output_dir": str(given.checkpoint),
        "max_steps": given.steps,
        "per_device_train_batch_size": given.micro_batch,
        "gradient_accumulation_steps": given.accumulate,
        "learning_rate": given.lr,
        "lr_scheduler_type": shapes[given.schedule],
        "lr_scheduler_kwargs": kwargs[given.schedule],
        "warmup_steps": given.warmup,
        "weight_decay": given.weight_decay,
        "adam_beta1": given.beta1,
        "adam_beta2": given.beta2,
        "max_grad_norm": given.clip,
        "gradient_checkpointing": given.recompute == "full",
        "save_strategy": "steps",
        "save_steps": min(given.checkpoint_steps, given.steps),
        "save_total_limit": given.keep,
        "logging_steps": 1,
        "seed": given.seed,
        "report_to": "none",
        "use_cpu": cpu,
        "bf16": given.precision == "bf16",
        "ddp_backend": "gloo" if cpu else "nccl",
        "dataloader_drop_last": True,
        "fsdp": given.fsdp or None,
    }


def train(trainer: Any) -> None:
    """Train from the newest whole checkpoint, if there is one; when asked to stop, save and leave with status 75."""
    run.listen()
    trainer.add_callback(_callback())
    newest = newest_checkpoint(Path(trainer.args.output_dir))
    if newest is not None and step_of(newest) >= trainer.args.max_steps:
        _end(step_of(newest))  # the Trainer would take one step more
        return
    if newest is not None:
        _load_every_weight(trainer, newest)
        if trainer.is_world_process_zero():
            print(f"resuming from {newest}", flush=True)
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
    if trainer.state.global_step < trainer.args.max_steps:
        run.exit_saved()
    _end(trainer.state.global_step)


def _end(step: int) -> None:
    """Nothing of the process group is left to the interpreter's exit: threads that it finds then abort the process."""
    import torch.distributed as dist

    run.finish(step)
    if dist.is_initialized():
        dist.destroy_process_group()


def _load_every_weight(trainer: Any, checkpoint: Path) -> None:
    """The Trainer saves some models (LLaVA, mixtures of experts) under the names of their published weights, finds none
    of them again when it resumes, warns, and goes on with random weights. Then the model's own reader, which knows both
    names, loads them; what still lacks a weight ends the run."""

    def loaded(result: Any) -> None:
        if result.missing_keys or result.unexpected_keys:
            whole = type(trainer.model).from_pretrained(checkpoint, dtype="auto")
            trainer.model.load_state_dict(whole.state_dict())

    trainer._issue_warnings_after_load = loaded


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose last file is there; one that a kill cut short is passed over."""
    return max((path.parent for path in folder.glob("checkpoint-*/trainer_state.json")), key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _callback() -> Any:
    from transformers import TrainerCallback

    class RunCallback(TrainerCallback):  # type: ignore[misc]
        """One line of progress per step, and a checkpoint when the scheduler asks the run to stop."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                known = {"lr": logs["learning_rate"], "grad_norm": logs.get("grad_norm"), "reward": logs.get("reward")}
                numbers = {name: float(value) for name, value in known.items() if value is not None}
                run.progress(state.global_step, float(logs["loss"]), total=args.max_steps, **numbers)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if run.should_stop():
                control.should_save = control.should_training_stop = True

    return RunCallback()
