"""Configuration files of trainers -> a job: torchtitan (TOML), NeMo and other programs on Lightning, llm-foundry,
accelerate, LLaMA-Factory, and YAML files with the arguments of the Hugging Face Trainer. Their keys are looked up in
the table that also serves command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File, Job, Value, known
from trainwright.check.readers.arguments import apply_stated, by_meaning, whole
from trainwright.check.readers.values import bool_at, int_at, value_of
from trainwright.spec.source import Node

_HUGGING_FACE = {"per_device_train_batch_size", "gradient_accumulation_steps", "output_dir", "num_train_epochs"}
# Sections of torchtitan; `model`, `optimizer` and `training` are of many programs.
_TITAN = {"parallelism", "activation_checkpoint", "experimental", "float8", "quantize"}
_OF_TITAN = (("lr_scheduler", "warmup_steps"), ("job", "dump_folder"))
# Of the models of NeMo. Other programs on Lightning have a trainer and a model too, of which the keys are their own.
_NEMO = {
    "micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
    "megatron_amp_O2", "encoder_seq_length", "restore_from_path",
}  # fmt: skip
_FACTORY_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto", "orpo")
_FACTORY = {"finetuning_type", "template", "cutoff_len"}
_DURATION = re.compile(r"(\d+)ba")
_DURATIONS = ("max_duration", "scheduler.t_warmup", "save_interval")
_DEPTH = 6


def trainer_of(root: Node) -> str:
    """The trainer whose configuration this is, or an empty text."""
    keys = set(root.value) if root.is_map else set()
    if {"compute_environment", "distributed_type"} <= keys:
        return "accelerate"
    if "max_duration" in keys and {"global_train_batch_size", "device_train_microbatch_size"} & keys:
        return "llm-foundry"
    titan = _TITAN & keys or any(_has(root, *path) for path in _OF_TITAN)
    if _has(root, "training", "steps") and titan:
        return "torchtitan"
    trainer = root.get("trainer")
    if trainer is not None and trainer.is_map and _has(root, "trainer", "num_nodes") and "model" in keys:
        model = root.get("model")
        megatron = model is not None and model.is_map and _NEMO & set(model.value)
        return "NeMo" if megatron or "exp_manager" in keys else "Lightning"
    stage = root.get("stage")
    if stage is not None and stage.text in _FACTORY_STAGES and "model_name_or_path" in keys and _FACTORY & keys:
        return "LLaMA-Factory"
    return "Hugging Face" if len(_HUGGING_FACE & keys) > 2 else ""


def _has(root: Node, *path: str) -> bool:
    return root.get(*path) is not None


def recognise(root: Node) -> bool:
    return trainer_of(root) != ""


def read(file: File) -> None:
    """One job per document; what launches it is in another file."""
    for root in file.nodes:
        trainer = trainer_of(root)
        if trainer:
            file.jobs.append(job_of(root, trainer))


def job_of(root: Node, trainer: str) -> Job:
    """The job that a configuration describes, as far as it does."""
    job = Job(span=root.span, scheduler="config")
    stated = dict(_flat(root, "", 0))
    if trainer == "Lightning":
        stated = {name: value for name, value in stated.items() if name.startswith("trainer.")}
    elif trainer == "llm-foundry":
        stated = {name: _batches(name, value) for name, value in stated.items()}
    apply_stated(job, by_meaning(stated), root.span)
    job.extra["trainer"] = Value(trainer, root.span)
    if trainer == "accelerate":
        _machines(job, root)
    elif trainer in ("NeMo", "Lightning"):
        job.processes_per_node = next((gpus for gpus in job.gpus_per_node if gpus.value > 0), None)
    elif trainer == "torchtitan" and not _saves(root):
        job.checkpoint_steps = None
    return job


def _flat(node: Node, path: str, depth: int) -> Iterator[tuple[str, Value[str]]]:
    """Every plain value under its dotted name; a placeholder or a reference (`${model.size}`) is not known."""
    for key, child in node.items():
        name = f"{path}.{key}" if path else key
        if child.is_map and depth < _DEPTH:
            yield from _flat(child, name, depth + 1)
        elif child.is_scalar and child.value is not None:
            value = value_of(child, node.keys.get(key))
            yield name.replace("-", "_"), value.meaning(value.text)


def _batches(name: str, value: Value[str]) -> Value[str]:
    """llm-foundry counts in batches (`100ba`), epochs, samples or tokens: only batches are steps."""
    if name not in _DURATIONS:
        return value
    match = _DURATION.fullmatch(value.value)
    return value.meaning(match[1] if match else "", known=match is not None)


def _machines(job: Job, root: Node) -> None:
    """accelerate counts the processes of all machines together."""
    total, machines = int_at(root, "num_processes"), int_at(root, "num_machines")
    job.nodes = machines
    count = known(machines)
    job.extra["all_processes"] = total.meaning(str(total.value)) if total is not None else Value("", root.span)
    if total is not None and total.known and count and count > 0 and total.value % count == 0:
        job.processes_per_node = total.meaning(total.value // count)


def _saves(root: Node) -> bool:
    """torchtitan writes checkpoints only where it is asked to."""
    return any(known(bool_at(root, "checkpoint", key)) for key in ("enable", "enable_checkpoint"))


def number(job: Job, name: str) -> Value[int] | None:
    """A number that a configuration states under a name of its own."""
    return whole(job.extra.get(name))
