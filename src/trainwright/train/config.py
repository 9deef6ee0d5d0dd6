"""The options of one training run: one dataclass that is the command line, the JSON file and the record of the run."""

from __future__ import annotations

import argparse
import json
import math
import re
import types
import typing
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.errors import UserError, did_you_mean
from trainwright.train.float8.recipes import RECIPES
from trainwright.train.objectives import names
from trainwright.train.parallel.plan import CONTEXTS
from trainwright.train.profile import EXAMPLE, parse_request

SHARES = {"holdout": 0.01, "mask_rate": 0.15, "drop_path": 0.1, "beta1": 0.9, "beta2": 0.95}  # below 1; usual values
UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def option(default: Any, group: str, text: str, **more: Any) -> Any:
    """A field with its group and its text in `--help`."""
    metadata = {"group": group, "help": text, **more}
    if isinstance(default, tuple):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TrainConfig:
    """Every choice of a run. A default that depends on the model or the machine is written as 0 or an empty text."""

    model: str = option("", "what", "a model of the catalogue, `NAME-debug` for its small variant, or a JSON file")
    objective: str = option("", "what", "what to train for (default: the usual one of that kind of model)")
    data: tuple[str, ...] = option((), "what", "prepared folder, s3://bucket/prefix or builtin:stdlib; `A:3 B:1` mixes")
    base: str = option("", "what", "start from these weights: a Hugging Face folder, a run or a checkpoint")
    lora_rank: int = option(
        0, "what", "train LoRA adapters of this rank on all linear layers; 0: train the whole model"
    )
    lora_alpha: float = option(32.0, "what", "LoRA: the adapters are scaled by alpha / rank")
    dpo_beta: float = option(0.1, "what", "DPO: how strongly the model is kept near the one it started from")
    steps: int = option(100, "what", "train up to this step", least=1)
    folder: str = option("", "what", "run folder, also where a restart continues (default: runs/MODEL)")

    sequence: int = option(0, "batch", "tokens per sample (default: the model's context, at most 8192)")
    batch: int = option(0, "batch", "samples per step over all ranks (default: one micro-batch per data rank)")
    micro_batch: int = option(0, "batch", "samples per forward pass (default: as many as fit on a GPU, 1 on a CPU)")
    holdout: float = option(0.0, "batch", "share of the data kept for evaluation, from its end")
    isolate: bool = option(True, "batch", "no attention across documents (BERT and RoBERTa always fill up across)")
    mask_rate: float = option(0.15, "batch", "masked LM and span corruption: share of the tokens that are predicted")
    shuffle: bool = option(True, "batch", "shuffle the samples anew each epoch")
    cache: str = option("", "batch", "folder (NVMe) that keeps what was read from S3")

    parallel: str = option("", "how", "plan, such as shard=8,tp=2 (default: shard over all ranks)")
    precision: str = option("", "how", "fp32, bf16 or fp8 (default: bf16 on a GPU, fp32 on a CPU)")
    float8: str = option("", "how", "scales of fp8: tensorwise (default), rowwise, blockwise or mxfp8; means fp8")
    float8_gather: bool = option(False, "how", "fp8, tensorwise: FSDP gathers weights in float8, half of the bytes")
    compile: bool | None = option(None, "how", "compile each block (default: on a GPU)")
    recompute: str = option("none", "how", "none, selective or full: recompute to save memory")
    offload_activations: float = option(
        0.0, "how", "share of the layers whose saved activations wait in host memory; 1: all, 0: none"
    )
    attention: str = option("auto", "how", "auto, cudnn, flash, efficient or math")
    async_tp: bool = option(False, "how", "tp, compiled, bf16: overlap its collectives with products, over NVLink")
    context: str = option(
        "gather", "how", "cp: gather all keys, all-to-all (a part of the heads per rank) or ring (keys travel)"
    )
    pipeline_schedule: str = option("1f1b", "how", "pp: 1f1b, or zero-bubble (weight gradients fill the drain)")
    offload_optimizer: bool = option(False, "how", "keep optimizer state in host memory")
    device: str = option("", "how", "cuda or cpu (default: a GPU where there is one)")
    deterministic: bool = option(False, "how", "only deterministic kernels")
    seed: int = option(0, "how", "of the initial weights and of the order of the data")

    optimizer: str = option(
        "adamw", "optimizer", "adamw, adamw8bit (moments in 8 bits) or muon (for matrices of blocks, else AdamW)"
    )
    lr: float = option(3e-4, "optimizer", "peak learning rate")
    schedule: str = option("cosine", "optimizer", "cosine, linear or wsd (warmup, stable, decay)")
    warmup: int = option(0, "optimizer", "steps of linear warmup")
    decay: int = option(0, "optimizer", "wsd: steps of the final decay (default: a tenth of all)")
    min_lr: float = option(0.1, "optimizer", "share of the peak that the rate falls to, one step after the last")
    weight_decay: float = option(0.1, "optimizer", "on matrices only")
    beta1: float = option(0.9, "optimizer", "AdamW's first moment")
    beta2: float = option(0.95, "optimizer", "AdamW's second moment")
    eps: float = option(1e-8, "optimizer", "AdamW's epsilon, added to the root of the second moment", least=1e-15)
    clip: float = option(1.0, "optimizer", "largest norm of the gradient; 0: no clipping")

    prototypes: int = option(0, "vision", "DINO: outputs of the head (default: 65536; 1024 for a debug size)")
    local_crops: int = option(8, "vision", "DINO: small crops per image beside the two large ones")
    teacher_momentum: float = option(0.996, "vision", "DINO: of the teacher's moving average at the start; ends at 1")
    teacher_temperature: float = option(0.07, "vision", "DINO: reached after the first tenth of the steps, from 0.04")
    final_weight_decay: float = option(0.0, "vision", "DINO: where a cosine leads the weight decay (default: constant)")
    drop_path: float = option(0.0, "vision", "DINO: stochastic depth of the student, at its last layer; the paper: 0.1")
    frozen_head: float = option(0.01, "vision", "DINO: share of the steps in which the last layer is not trained")

    checkpoint_every: str = option("15min", "checkpoints", "steps (200) or time (15min); `never` also skips the last")
    checkpoint_to: str = option("", "checkpoints", "folder or s3://bucket/prefix (default: in the run folder)")
    keep_last: int = option(3, "checkpoints", "how many of the newest to keep", least=1)
    keep_every: int = option(0, "checkpoints", "keep every step that is a multiple of this as well")
    resume: str = option("auto", "checkpoints", "auto, never, or a step; newer checkpoints are then set aside")

    eval_every: int = option(0, "watching", "steps between evaluations (needs --holdout or --eval-data); 0: none")
    eval_data: tuple[str, ...] = option((), "watching", "data to evaluate on, instead of a held-out share")
    eval_batches: int = option(8, "watching", "global batches per evaluation (at most all its data)", least=1)
    log_every: int = option(1, "watching", "steps between lines", least=1)
    log_samples: bool = option(False, "watching", "record which samples each step saw, for audits of the data")
    tensorboard: bool = option(False, "watching", "write TensorBoard files into the run folder")
    wandb: str = option("", "watching", "Weights & Biases project to report to")
    profile: str = option("", "watching", "trace these steps of these ranks: 'steps=10..12 ranks=0,8'")

    on_nan: str = option("skip", "guards", "loss or gradient is NaN or infinite: skip the step, rewind, or stop")
    on_spike: str = option("log", "guards", "loss far above the recent ones: log, skip, rewind or stop")
    spike_factor: float = option(8.0, "guards", "spike: a loss this many usual spreads above the median")
    watchdog: float = option(
        600.0, "guards", "seconds without a step until all ranks dump their stacks and exit; 0: off"
    )
    startup_timeout: float = option(300.0, "guards", "seconds until all ranks must have joined at the start", least=1)
    spot_notices: bool = option(False, "guards", "poll the instance metadata for spot interruption notices")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), f.metadata.get("least", 0)
            if isinstance(value, int | float) and not least <= value < math.inf:
                flag, rule = "--" + f.name.replace("_", "-"), f"at least {least}"
                rule = rule if math.isfinite(value) else "a finite number"
                usual = SHARES.get(f.name) or f.default or least or 1
                raise UserError(f"{flag} is {value}; it must be {rule}", fix=f"{flag} {usual}")
        for name, usual in SHARES.items():
            value, flag = getattr(self, name), "--" + name.replace("_", "-")
            if not value < 1:
                raise UserError(f"{flag} is {value}; it must be below 1", fix=f"{flag} {usual}")
        if self.teacher_momentum > 1:
            what = f"--teacher-momentum is {self.teacher_momentum}; it is a share, at most 1"
            raise UserError(what, fix="--teacher-momentum 0.996")
        if self.offload_activations > 1:
            what = f"--offload-activations is {self.offload_activations}; it is a share of the layers, at most 1"
            raise UserError(what, fix="--offload-activations 1")
        if self.min_lr > 1:
            raise UserError(f"--min-lr is {self.min_lr}; it is a share of --lr, at most 1", fix="--min-lr 0.1")
        if self.float8 and self.precision not in ("", "fp8"):
            what = f"--float8 {self.float8} with --precision {self.precision}"
            raise UserError(what, fix="--precision fp8, or leave one of the two out")
        if self.profile:
            try:
                parse_request(self.profile)
            except ValueError as error:
                raise UserError(f"--profile is {self.profile!r}: {error}", fix=f"--profile '{EXAMPLE}'") from None
        if self.resume not in ("auto", "never") and not self.resume.isdecimal():
            raise UserError(f"--resume is {self.resume!r}", fix="auto, never, or the number of a step")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


CHOICES = {
    "objective": ("", *names()),
    "precision": ("", "fp32", "bf16", "fp8"),
    "float8": ("", *RECIPES),
    "recompute": ("none", "selective", "full"),
    "context": CONTEXTS,
    "pipeline_schedule": ("1f1b", "zero-bubble"),
    "attention": ("auto", "cudnn", "flash", "efficient", "math"),
    "optimizer": ("adamw", "adamw8bit", "muon"),
    "schedule": ("cosine", "linear", "wsd"),
    "device": ("", "cuda", "cpu"),
    "on_nan": ("skip", "rewind", "stop"),
    "on_spike": ("log", "skip", "rewind", "stop"),
}
# What earlier versions called an option or a value; command lines and files that say so still work.
FORMER_NAMES = {"activation_checkpoint": "recompute"}
FORMER_VALUES = {"precision": {"float8": "fp8"}}
TITLES = {"what": "what to train", "batch": "data and batch", "how": "how to compute"}
EXAMPLES = """examples:
  python -m trainwright.train --model llama3.2-1b-debug --data builtin:stdlib --steps 20
  torchrun --nproc-per-node 2 -m trainwright.train --model llama3.2-1b-debug --data builtin:stdlib --parallel shard=2
  srun python -m trainwright.train --config run.json
  trainwright train export runs/first hf/            weights to a Hugging Face folder (and `import`)

exit status: 0 done, 1 failed, 2 wrong usage, 70 hung (stacks are in the run folder),
75 saved after SIGTERM, SIGUSR1 or a spot notice: start the same command again and it continues
"""


def parser() -> argparse.ArgumentParser:
    """The command line, made from the fields."""
    top = argparse.ArgumentParser(
        prog="trainwright train",
        usage="trainwright train --model MODEL --data DATA [DATA ...] [--config FILE] [options]",
        description="Train a model: alone, under torchrun, or under srun.",
        epilog=EXAMPLES,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34),
    )
    top.add_argument("--config", metavar="FILE", help="JSON with these options; the command line wins")
    groups: dict[str, Any] = {}
    hints = typing.get_type_hints(TrainConfig)
    for f in fields(TrainConfig):
        name = f.metadata["group"]
        if name not in groups:
            groups[name] = top.add_argument_group(TITLES.get(name, name))
        groups[name].add_argument("--" + f.name.replace("_", "-"), **words(f, hints[f.name]))
    for former, name in FORMER_NAMES.items():
        flag = "--" + former.replace("_", "-")
        top.add_argument(flag, dest=name, default=argparse.SUPPRESS, choices=CHOICES[name], help=argparse.SUPPRESS)
    return top


def words(f: Field[Any], kind: Any) -> dict[str, Any]:
    """The argparse arguments of one field."""
    text = f.metadata["help"]
    default = f.default if f.default is not MISSING else ()
    if default not in ("", 0, 0.0, (), False, True, None) and "default" not in text:
        text += f" (default: {default})"
    common = {"dest": f.name, "default": argparse.SUPPRESS, "help": text}
    if kind in (bool, bool | None):
        common["help"] += " (default: yes)" if default else ""
        return {**common, "action": argparse.BooleanOptionalAction}
    if isinstance(kind, types.GenericAlias):
        return {**common, "nargs": "+", "action": "extend", "metavar": "DATA"}
    if f.name in CHOICES:
        return {
            **common,
            "type": partial(current, f.name),
            "choices": [c for c in CHOICES[f.name] if c],
            "metavar": "WORD",
        }
    return {**common, "type": kind, "metavar": {int: "N", float: "X"}.get(kind, f.name.rsplit("_")[-1].upper())}


def current(name: str, value: Any) -> Any:
    """The current spelling of a value."""
    return FORMER_VALUES.get(name, {}).get(value, value)


def parse_arguments(arguments: list[str] | None = None) -> TrainConfig:
    """The configuration of a command line and of the file it names."""
    given = vars(parser().parse_args(arguments))
    path = given.pop("config", None)
    values: dict[str, Any] = {**(read_file(Path(path)) if path else {}), **given}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    config = TrainConfig(**values)
    for name in ("model", "data"):
        if not getattr(config, name):
            raise UserError(f"--{name} is missing", fix="--model llama3.2-1b-debug --data builtin:stdlib, for a start")
    return config


def read_file(path: Path) -> dict[str, Any]:
    """The options of a JSON file, each of a known name and the right type."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the configuration: {error}", where=str(path), fix="a JSON object") from error
    if not isinstance(values, dict):
        raise UserError("the configuration is not a JSON object", where=str(path), fix='{"model": "…", "data": ["…"]}')
    values = {FORMER_NAMES.get(name, name): value for name, value in values.items()}
    values = {name: current(name, value) if isinstance(value, str) else value for name, value in values.items()}
    known = {f.name: f for f in fields(TrainConfig)}
    hints = typing.get_type_hints(TrainConfig)
    for name, value in values.items():
        if name not in known:
            raise UserError(f"no option {name!r}", where=str(path), fix=did_you_mean(name, known) or "see --help")
        kind = bool if hints[name] == (bool | None) else hints[name]
        allowed = (list,) if isinstance(kind, types.GenericAlias) else (int, float) if kind is float else (kind,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            wanted = "a list" if allowed == (list,) else kind.__name__
            raise UserError(f"{name} is {value!r}; it must be {wanted}", where=str(path))
        if name in CHOICES and value not in CHOICES[name]:
            raise UserError(f"{name} is {value!r}", where=str(path), fix=f"one of {', '.join(CHOICES[name])}")
    return values


@dataclass(frozen=True, slots=True)
class Interval:
    """How often: every so many steps, every so many seconds, or never (both 0)."""

    steps: int = 0
    seconds: float = 0.0


def parse_interval(text: str) -> Interval:
    """`200` is steps, `15min` is time, `never` is never."""
    if text == "never":
        return Interval()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if not match or (match[2] and match[2] not in UNITS) or float(match[1]) <= 0 or (not match[2] and "." in match[1]):
        raise UserError(f"{text!r} is not an interval", fix="a number of steps (200), a time (15min, 1h), or never")
    return Interval(seconds=float(match[1]) * UNITS[match[2]]) if match[2] else Interval(steps=int(match[1]))
