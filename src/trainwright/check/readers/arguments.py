"""What a launch command states about a job, in any trainer's words. The spellings are in data/arguments.toml."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from trainwright.check.launches.launchers import is_program, own_options
from trainwright.check.model import Command, Job, ModelDims, Value
from trainwright.check.tables import table
from trainwright.spec.source import Span

_WHOLE = re.compile(r"[+-]?[0-9](_?[0-9]){0,17}")
_NUMBERS = ("tp", "pp", "cp", "ep", "virtual_stages", "global_batch", "micro_batch", "sequence", "workers")
_REST = ("shard", "replicate")
_DIMS = ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "max_position", "experts")
# What a launcher reads; among the options of the script it starts, the same names may mean anything.
_OF_LAUNCHER = ("processes", "all_processes", "machines", "node_rank", "endpoint", "master_address", "master_port")
_EXTRA = (
    "node_rank",
    "endpoint",
    "master_address",
    "master_port",
    "virtual_layers",
    "head_width",
    "uneven_layers",
    "schedule",
)


@cache
def _fields() -> dict[str, str]:
    """Argument name -> what it means."""
    names: dict[str, list[str]] = table("arguments")["names"]
    return {alias: meaning for meaning, aliases in names.items() for alias in aliases}


def meanings(command: Command) -> dict[str, Value[str]]:
    """The command's options by what they mean; the last one wins."""
    return by_meaning(command.options)


def by_meaning(options: dict[str, Value[str]]) -> dict[str, Value[str]]:
    """Options of a command, or keys of a configuration, by what they mean."""
    fields = _fields()
    said = {}
    for name, value in options.items():
        meaning = fields.get(name)
        if meaning is not None and (value.value or meaning in ("valid", "test", "uneven_layers")):
            said[meaning] = value
    return said


def whole(value: Value[str] | None) -> Value[int] | None:
    """A text as a whole number; another text is stated but not known."""
    if value is None:
        return None
    text = value.value.strip().strip("'\"")
    good = value.known and _WHOLE.fullmatch(text) is not None
    return value.meaning(int(text) if good else 0, known=good)


def apply(job: Job, command: Command) -> None:
    """Fill the job with what its launch command says."""
    said = _said(command)
    apply_stated(job, said, command.span)
    _accelerate(job, command, said)


def _said(command: Command) -> dict[str, Value[str]]:
    """The options by what they mean: those of a launcher as far as it reads them (`trainer.num_nodes` is no such name),
    and the node's rank whoever reads it."""
    said = {name: value for name, value in meanings(command).items() if name not in _OF_LAUNCHER}
    of_trainer = {name: value for name, value in command.options.items() if "." in name}
    for name, value in by_meaning(own_options(command) | of_trainer).items():
        said |= {name: value} if name in _OF_LAUNCHER else {}
    rank = meanings(command).get("node_rank") if is_program(command) else None
    return said | ({"node_rank": rank} if rank is not None else {})


def apply_stated(job: Job, said: dict[str, Value[str]], span: Span) -> None:
    """Fill the job with what is stated, by meaning; `span`: where the model is described."""
    for name in _NUMBERS:
        if name in said:
            setattr(job, name, whole(said[name]))
    for name in _REST:  # -1: as many as are left
        if name in said:
            setattr(job, name, _positive(whole(said[name])))
    job.processes_per_node = whole(said.get("processes")) or job.processes_per_node
    job.nodes = whole(said.get("machines")) or job.nodes
    gpus = whole(said.get("gpus"))
    if gpus is not None:
        job.gpus_per_node.append(gpus)
    job.model = _model(span, said)
    _schedule(job, said)
    job.checkpoint_dir = said.get("checkpoint_dir")
    job.checkpoint_steps = whole(said.get("checkpoint_steps"))
    job.datasets = {name: said[name] for name in ("train", "valid", "test") if name in said}
    job.extra |= {name: said[name] for name in _EXTRA if name in said}


def _accelerate(job: Job, command: Command, said: dict[str, Value[str]]) -> None:
    """`accelerate launch --num_processes` counts the processes of every machine together."""
    total, nodes = whole(said.get("all_processes")), job.nodes
    if command.program != "accelerate" or total is None:
        return
    if total.known and nodes is not None and nodes.known and nodes.value > 0 and total.value % nodes.value == 0:
        job.processes_per_node = replace(total, value=total.value // nodes.value)


def _model(span: Span, said: dict[str, Value[str]]) -> ModelDims | None:
    dims: dict[str, Any] = {name: whole(said[name]) for name in _DIMS if name in said}
    if not dims and "model" not in said:
        return None
    return ModelDims(span, name=said.get("model"), tokenizer_vocab=_tokens(said.get("tokenizer")), **dims)


def _tokens(tokenizer: Value[str] | None) -> Value[int] | None:
    """How many tokens a well-known tokenizer has."""
    if tokenizer is None or not tokenizer.known:
        return None
    name = tokenizer.value.lower()
    size = next((size for part, size in table("tokenizers")["sizes"].items() if part in name), None)
    return Value(size, tokenizer.span) if size is not None else None


def _schedule(job: Job, said: dict[str, Value[str]]) -> None:
    """Warm-up, decay and length, all in steps or all in samples."""
    unit = "_samples" if "steps" not in said and "steps_samples" in said else ""
    job.steps = _positive(whole(said.get("steps" + unit)))
    job.warmup = whole(said.get("warmup" + unit))
    job.decay = _positive(whole(said.get("decay" + unit)))
    if unit and job.steps is not None:
        job.extra["unit"] = Value("samples", job.steps.span)


def _positive(value: Value[int] | None) -> Value[int] | None:
    """Trainers write `-1` for "not used"."""
    return value if value is None or not value.known or value.value > 0 else None
