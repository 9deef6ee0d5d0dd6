"""DSP: DeepSpeed's JSON configuration: batch sizes, precision, ZeRO stage, schedule."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace

from trainwright.check import reasons
from trainwright.check.launches.named_configs import assigned_beside, states_beside
from trainwright.check.model import File, known
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.dsp_auto import unfilled_batches
from trainwright.check.rules.dsp_keys import unknown_keys
from trainwright.check.rules.dsp_saving import unsaved_weights
from trainwright.check.rules.dsp_values import (
    OFFLOADS,
    in_host_memory,
    names_a_file,
    refused_device,
    refused_values,
    uses_deepspeed,
    without_path,
)
from trainwright.check.used_configs import is_without_deepspeed
from trainwright.spec.source import Node, Span

_STAGES = (0, 1, 2, 3)
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_OFFLOAD_DEVICE = "offload_param_device"
_OFFLOAD_DEVICES = ("offload_optimizer_device", _OFFLOAD_DEVICE)
_PRECISIONS = ("no", "fp16", "bf16", "fp8")  # of accelerate
_NONE = "'no', with the quotes"
_PRECISION_OF = {"fp32": _NONE, "float32": _NONE, "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_UNSET = ("", "none", "null", "~", "false")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_PYTHON_WORD = re.compile(r"(True|False|None)[\s,}\]]*")
_DECAYING = ("WarmupDecayLR", "WarmupCosineLR")


@rule("DSP001", "error")
def deepspeed_configuration_is_consistent(file: File) -> Iterator[Problem]:
    """A DeepSpeed configuration must be consistent.

    The train batch size is a multiple of micro-batch × accumulation steps; fp16 and bf16 are not both enabled; the ZeRO
    stage is 0 to 3, and parameters are offloaded in stage 3 only (a warning), states to nvme too (a note, for they are
    in the host's memory below); the warm-up is not longer than the schedule, WarmupLR has no `total_num_steps`, and
    optimizers, their parameters and schedules have the names that DeepSpeed and torch know (warnings); states and
    parameters are offloaded to cpu or nvme, and to nvme with a path; weights of ZeRO-3 are gathered where a program
    beside the file saves them (a warning). Batches are at least 1; a key of the top level is not a misspelling of a
    known one. Sections that have a model of their own (zero_optimization and its parts, bf16, fp16, tensor_parallel,
    compile, comms_logger, hybrid_engine and the monitors) take no other key: of bf16 and fp16 this is so since
    DeepSpeed 0.17.1, so that `loss_scale` and other keys of fp16 stop the job under bf16. What DeepSpeed 0.19.8 removed
    (amp, elasticity and others) is a note. In an accelerate configuration, the ZeRO stage and the mixed precision
    exist, and `no` is in quotes (a warning); `deepspeed_config` is read only where `distributed_type` is DEEPSPEED. A
    value of "auto" is unknown and not reported, but for batches of a file that the only program beside it gives to
    deepspeed.initialize as it is; a value that a script beside the file sets after reading it is a note.

    Why: DeepSpeed stops on every rank after the nodes were allocated (55 USD per hour for each p5.48xlarge), or
    ignores the setting.

    Fix: as the message says.

    Source: DeepSpeed 0.12.6 to 0.19.8, its models and assertions (each kind was given to DeepSpeedConfig of 0.16.9,
    0.17.6, 0.18.9 and 0.19.8); accelerate 1.15, `PrecisionType`.

    When to ignore: a launcher overrides the value.
    """
    for root in file.nodes if file.format == "trainer_config" else ():
        yield from _accelerate(file, root) if uses_deepspeed(root) and not is_without_deepspeed(file.path) else ()
        yield from _accelerate_precision(root) if not states_beside(file.path, "mixed_precision") else ()
    if file.format == "deepspeed" and file.path.endswith(".json") and not file.template:
        yield from _strict(file)
    for root in file.nodes if file.format == "deepspeed" else ():
        yield from unknown_keys(root)
        yield from _unless_assigned(file, refused_values(root), "total_num_steps")
        yield from (p for name in OFFLOADS for p in _unless_assigned(file, without_path(root, name), "nvme_path"))
        yield from unsaved_weights(file, root)
        yield from unfilled_batches(file, root)
        yield from _unless_assigned(file, _batch(root), "train_batch_size")
        yield from _unless_assigned(file, _precision(root), "enabled")
        yield from _unless_assigned(file, _zero(root), "stage")
        yield from _unless_assigned(file, _schedule(root), "total_num_steps")


def _unless_assigned(file: File, problems: Iterator[Problem], key: str) -> Iterator[Problem]:
    """Notes where a script beside the file sets the key after it read it."""
    for one in problems:
        yield replace(one, level="info") if assigned_beside(file.path, key) else one


def _strict(file: File) -> Iterator[Problem]:
    try:
        json.loads(file.text)
    except json.JSONDecodeError as error:
        yield problem(
            Span(error.lineno, error.colno, error.lineno, error.colno + 1),
            "Hjson, not JSON, from here on: DeepSpeed itself reads it (comments, commas one too many or too few), but "
            "Hugging Face's Trainer and accelerate do not",
            "write it as JSON",
            level="info",
            why="json.load stops at this place.",
        )
        yield from _python_words(file)


def _python_words(file: File) -> Iterator[Problem]:
    """True, False and None of Python: one finding for all of a file."""
    lines, words = file.text.split("\n"), []
    for node in file.scalars():
        word = _PYTHON_WORD.fullmatch(node.text)  # in quotes it is a text for every reader
        if word is not None and lines[node.span.line - 1].startswith(word[1], node.span.column - 1):
            words.append((node, word[1]))
    if words:
        names = list(dict.fromkeys(name for _, name in words))
        more = f" ({len(words)} places of the file)" if len(words) > 1 else ""
        yield problem(
            words[0][0],
            f"JSON has no {', '.join(names)}: DeepSpeed takes it for a text, and other readers stop",
            f"write {', '.join(f'{_PYTHON_WORDS[name]} for {name}' for name in names)}{more}",
            level="warning",
            why="DeepSpeed reads Hjson, in which a text without quotes goes to the end of its line; json.load stops.",
        )


def _batch(root: Node) -> Iterator[Problem]:
    total, micro = int_at(root, "train_batch_size"), int_at(root, "train_micro_batch_size_per_gpu")
    steps = int_at(root, "gradient_accumulation_steps")
    refused = [
        (key, value)
        for key, value in zip(_BATCHES, (total, micro, steps), strict=True)
        if value is not None and value.known and value.value < 1
    ]
    left = [one for one in (total, micro) if one is not None and one not in [value for _, value in refused]]
    for n, (key, value) in enumerate(refused):
        fix = "remove it: DeepSpeed computes it from the others" if left or n else "write 1 or more"
        yield problem(value, f"{key} is {value.value}: DeepSpeed stops", fix)
    if refused:
        return
    if total is None or not total.known or known(bool_at(root, "elasticity", "enabled")):
        return  # with elasticity DeepSpeed computes all three
    factors = {name: known(value) for name, value in (("micro-batch", micro), ("accumulation steps", steps))}
    parts = {name: value for name, value in factors.items() if value is not None}
    each = math.prod(parts.values())
    if total.value % each:
        whole = "remove it: DeepSpeed computes it from the other two and the ranks"
        yield problem(
            total,
            f"train_batch_size {total.value} is not a multiple of {' × '.join(parts)} ({each})",
            whole if len(parts) > 1 else f"write a multiple of {each} × the number of ranks",
        )


def _precision(root: Node) -> Iterator[Problem]:
    half, brain = bool_at(root, "fp16", "enabled"), bool_at(root, "bf16", "enabled")
    brain = brain or bool_at(root, "bfloat16", "enabled")  # its older name
    if half is not None and brain is not None and known(half) and known(brain):
        yield problem(brain, "fp16 and bf16 are both enabled: DeepSpeed stops", "enable one of the two")


def _zero(root: Node) -> Iterator[Problem]:
    stage = int_at(root, "zero_optimization", "stage")
    if stage is None or not stage.known:
        return
    if stage.value not in _STAGES:
        yield problem(stage, f"there is no ZeRO stage {stage.value}", "use 0, 1, 2 or 3")
    parameters = root.get("zero_optimization", "offload_param")
    if parameters is not None and parameters.is_map and stage.value < 3 and _offloads(parameters):
        yield problem(
            root.get("zero_optimization", "offload_param") or stage,
            f"offload_param needs ZeRO stage 3, and this is stage {stage.value}: parameters stay on the GPU",
            "use stage 3, or remove offload_param",
            level="warning",
            why=reasons.PARAMETERS_STAY,
        )


def _accelerate(file: File, root: Node) -> Iterator[Problem]:
    """The same in the `deepspeed_config` of an accelerate configuration."""
    for name in _OFFLOAD_DEVICES:
        device, path = text_at(root, "deepspeed_config", name), name.replace("device", "nvme_path")
        if states_beside(file.path, name):
            continue
        yield from refused_device(device, name)
        zero = text_at(root, "deepspeed_config", "zero_stage")
        if device is not None and device.value == "nvme" and known(zero) in ("1", "2"):
            if name != _OFFLOAD_DEVICE and zero is not None and not states_beside(file.path, "zero_stage"):
                yield in_host_memory(device, name, zero.value)
            continue
        nvme = device is not None and device.value == "nvme"
        if device is not None and nvme and _no_text(root, path) and not states_beside(file.path, path):
            what = f"{name} is nvme without {path}: the swap files go to a directory named none"
            yield problem(
                device, what, f"write {path}, a directory on a local disk", level="warning", why=reasons.NAMED_NONE
            )
    yield from unsaved_weights(file, root)
    stage, device = int_at(root, "deepspeed_config", "zero_stage"), text_at(root, "deepspeed_config", _OFFLOAD_DEVICE)
    if stage is None or not stage.known or states_beside(file.path, "zero_stage", _OFFLOAD_DEVICE):
        return
    if stage.value not in _STAGES:
        yield problem(stage, f"there is no ZeRO stage {stage.value}", "use 0, 1, 2 or 3")
    elif stage.value < 3 and device is not None and device.value in ("cpu", "nvme"):
        yield problem(
            device,
            f"{_OFFLOAD_DEVICE} needs ZeRO stage 3, and this is stage {stage.value}: parameters stay on the GPU",
            "use zero_stage: 3, or write none",
            level="warning",
            why=reasons.PARAMETERS_STAY,
        )


def _no_text(root: Node, key: str) -> bool:
    value = text_at(root, "deepspeed_config", key)
    return value is None or (value.known and value.value.lower() in _UNSET)


def _accelerate_precision(root: Node) -> Iterator[Problem]:
    precision, written = text_at(root, "mixed_precision"), root.get("mixed_precision")
    if root.get("compute_environment") is None or precision is None or not precision.known or names_a_file(root):
        return  # beside deepspeed_config_file any value is refused, which is said there
    if precision.value.lower() not in (*_PRECISIONS, *_UNSET):
        meant = _PRECISION_OF.get(precision.value.lower())
        fix = f"write {meant}" if meant else "use 'no', with the quotes, fp16, bf16 or fp8"
        yield problem(precision, f"accelerate has no mixed precision {precision.value}: it stops", fix)
    elif written is not None and written.value is False:
        yield problem(
            precision,
            f"YAML reads {precision.text} without quotes as false: accelerate 0.34 and later stop, unless the launcher "
            "is given --mixed_precision",
            f"write {_NONE}",
            level="warning",
            why="the launcher ends with `AttributeError: 'bool' object has no attribute 'lower'`.",
        )


def _offloads(node: Node) -> bool:
    device = node.get("device")
    return device is not None and device.text in ("cpu", "nvme")


def _schedule(root: Node) -> Iterator[Problem]:
    """The parameters of DeepSpeed's own schedules with a warm-up."""
    kind = text_at(root, "scheduler", "type")
    params = root.get("scheduler", "params")
    warmup, total = int_at(params, "warmup_num_steps"), int_at(params, "total_num_steps")
    if kind is None or params is None or total is None:
        return
    if kind.value == "WarmupLR":
        yield problem(
            params.key_span("total_num_steps"),
            "WarmupLR has no total_num_steps: DeepSpeed stops, unless the script passes a schedule of its own",
            "remove it, or use WarmupDecayLR, which decays to zero at that step",
            level="warning",
            why="deepspeed.initialize calls WarmupLR with every key of params: a TypeError on every rank.",
        )
    elif kind.value in _DECAYING and warmup is not None and warmup.known and total.known and warmup.value > total.value:
        yield problem(
            warmup,
            f"a warm-up of {warmup.value:,} steps, but total_num_steps is {total.value:,}: at that step the learning "
            "rate is still below its maximum",
            "write a smaller warmup_num_steps or a larger total_num_steps",
            level="warning",
            why="DeepSpeed says so in a warning of its log, and trains.",
        )
