"""What one rank runs: our trainer, another's, or a script of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import isfile  # False for a name that no file system takes, where Path raises
from pathlib import Path

from trainwright.jobs.arguments import trainer_arguments
from trainwright.jobs.foreign import foreign_command
from trainwright.jobs.resolved import ResolvedJob, Training


def rank_command(job: ResolvedJob, python: str, code: Path, folder: Path | None = None) -> tuple[str, ...]:
    """The command line of a rank; the launcher puts its rank and the rendezvous into the environment."""
    if job.job.command:
        own = {word for word in job.runtime.carried if isfile(job.base / word)}
        return (*(str(code / word) if word in own else word for word in job.job.command), *job.job.args)
    if job.job.script:
        script = Path(job.job.script)
        return ("bash" if script.suffix in (".sh", ".bash") else python, str(code / script.name), *job.job.args)
    if job.trainer == "foreign":
        return foreign_command(job, folder)
    return (python, "-m", "trainwright.train", *train_options(job, code))


def own_words(command: Sequence[str], base: Path) -> tuple[str, ...]:
    """The words of a command that name something of this machine's folder: a file below it, or its module (`-m`)."""
    return tuple(
        word for before, word in zip(("", *command), command, strict=False)
        if _is_below(word) and (isfile(base / word) or (before == "-m" and _is_module(base, word)))
    )  # fmt: skip


def _is_below(word: str) -> bool:
    return bool(word) and "\0" not in word and not Path(word).is_absolute() and ".." not in Path(word).parts


def _is_module(base: Path, name: str) -> bool:
    path = base.joinpath(*name.split("."))
    return isfile(path.with_name(f"{path.name}.py")) or isfile(path / "__main__.py")


def train_options(job: ResolvedJob, code: Path) -> list[str]:
    """The words after `python -m trainwright.train`, with the run's code in that folder. What the user's own arguments
    state is left to them."""
    training = job.training
    assert training is not None
    options: dict[str, object] = {
        "model": str(code / training.model_copy) if training.model_copy else training.model,
        "objective": training.objective,
        "data": training.data,
        "steps": training.steps,
        "sequence": training.sequence,
        "batch": training.batch,
        "micro-batch": training.micro_batch,
        "parallel": str(training.plan) if training.plan.world > 1 else None,
        "precision": training.precision,
        "float8": training.float8,
        **_optimizer(training),
        **_checkpoints(training),
        "recompute": training.recompute if training.recompute != "none" else None,
        **{name.replace("_", "-"): value for name, value in training.options.items()},
    }
    given = {name.replace("_", "-") for name in trainer_arguments(job.job.args).values}
    stated = {name: value for name, value in options.items() if value is not None and name not in given}
    args = with_model(job.job.args, str(code / training.model_copy)) if training.model_copy else job.job.args
    return [*(word for name, value in stated.items() for word in _words(name, value)), *args]


def _words(name: str, value: object) -> tuple[str, ...]:
    """One option of the command line; a switch has no value."""
    if isinstance(value, bool):
        return (f"--{name}" if value else f"--no-{name}",)
    return f"--{name}", str(value)


def with_model(args: tuple[str, ...], model: str) -> tuple[str, ...]:
    """The trainer's arguments with another value wherever they name a model."""
    words: list[str] = []
    for word in args:
        if words and words[-1] == "--model":
            words.append(model)
        else:
            words.append(f"--model={model}" if word.startswith("--model=") else word)
    return tuple(words)


def _optimizer(training: Training) -> dict[str, object]:
    optimizer = training.optimizer
    beta1, beta2 = optimizer.betas or (None, None)
    options: dict[str, object] = {
        "lr": optimizer.lr,
        "warmup": optimizer.warmup,
        "schedule": optimizer.schedule,
        "decay": optimizer.decay,
        "min-lr": optimizer.final,
        "weight-decay": optimizer.weight_decay,
        "beta1": beta1,
        "beta2": beta2,
        "clip": optimizer.clip,
    }
    if optimizer.schedule == "constant":
        options |= {"schedule": "linear", "min-lr": 1.0}  # a line from the peak to the peak
    return options


def _checkpoints(training: Training) -> dict[str, object]:
    stated = training.checkpoint
    if stated is None:
        return {}
    every = stated.steps if stated.steps is not None else f"{stated.every:g}s" if stated.every is not None else None
    return {"checkpoint-every": every, "checkpoint-to": stated.to, "keep-last": stated.keep}
