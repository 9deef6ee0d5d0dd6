"""DSP: DeepSpeed's JSON configuration: batch sizes, precision, ZeRO stage, schedule."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File, Value, known
from trainwright.check.readers.json_source import parse_json
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.dsp_keys import unknown_keys
from trainwright.spec.source import Node, SourceError

_STAGES = (0, 1, 2, 3)
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_PRECISIONS = ("no", "fp16", "bf16", "fp8")  # of accelerate
_UNSET = ("", "none", "null", "~", "false")


@rule("DSP001", "error")
def deepspeed_configuration_is_consistent(file: File) -> Iterator[Problem]:
    """A DeepSpeed configuration must be consistent.

    The train batch size is a multiple of micro-batch × accumulation steps; fp16 and bf16 are not both enabled; the ZeRO
    stage is 0 to 3, and parameters are offloaded in stage 3 only (a warning); the warm-up is shorter than the schedule.
    Batches are at least 1; a key of the top level is not a misspelling of a known one. Sections that have a model of
    their own (zero_optimization and its parts, bf16, fp16, tensor_parallel, compile, comms_logger, hybrid_engine and
    the monitors) take no other key: of bf16 and fp16 this is so since DeepSpeed 0.17.1, so that `loss_scale` and other
    keys of fp16 stop the job under bf16. What DeepSpeed 0.19.8 removed (amp, elasticity and others) is a note. In an
    accelerate configuration, the ZeRO stage and the mixed precision exist. A value of "auto" is unknown and not
    reported.

    Why: DeepSpeed stops on every rank after the nodes were allocated (55 USD per hour for each p5.48xlarge), or
    ignores the setting.

    Fix: as the message says.

    Source: DeepSpeed 0.12.6 to 0.19.8, its models and assertions (each kind was given to DeepSpeedConfig of 0.16.9,
    0.17.6, 0.18.9 and 0.19.8); accelerate 1.15, `PrecisionType`.

    When to ignore: a launcher overrides the value.
    """
    for root in file.nodes if file.format == "trainer_config" else ():
        yield from _accelerate(root)
        yield from _accelerate_values(root)
    if file.format == "deepspeed" and file.path.endswith(".json") and not file.template:
        yield from _strict(file)
    for root in file.nodes if file.format == "deepspeed" else ():
        yield from unknown_keys(root)
        yield from _batch(root)
        yield from _precision(root)
        yield from _zero(root)
        yield from _schedule(root)


def _strict(file: File) -> Iterator[Problem]:
    try:
        parse_json(file.text, file.path)
    except SourceError as error:
        yield problem(
            error.span,
            "no JSON: DeepSpeed itself reads comments and commas after a last value, but Hugging Face's Trainer and "
            "accelerate do not",
            "remove them",
            level="info",
            why="json.load stops at the first of them.",
        )


def _batch(root: Node) -> Iterator[Problem]:
    for key in _BATCHES:
        value = int_at(root, key)
        if value is not None and value.known and value.value < 1:
            yield problem(value, f"{key} is {value.value}: DeepSpeed stops", "write 1 or more")
            return
    total, micro = int_at(root, "train_batch_size"), int_at(root, "train_micro_batch_size_per_gpu")
    steps = int_at(root, "gradient_accumulation_steps")
    each = (known(micro) or 1) * (known(steps) or 1)
    if total is None or not total.known or each < 1:
        return
    if total.value % each:
        yield problem(
            total,
            f"train_batch_size {total.value} is not a multiple of micro-batch × accumulation steps ({each})",
            f"write a multiple of {each}: it is {each} × the data-parallel size",
        )


def _precision(root: Node) -> Iterator[Problem]:
    half, brain = bool_at(root, "fp16", "enabled"), bool_at(root, "bf16", "enabled")
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
        )


def _accelerate(root: Node) -> Iterator[Problem]:
    """The same in the `deepspeed_config` of an accelerate configuration."""
    stage, device = (text_at(root, "deepspeed_config", key) for key in ("zero_stage", "offload_param_device"))
    if stage is None or device is None or stage.value not in ("0", "1", "2") or device.value not in ("cpu", "nvme"):
        return
    yield problem(
        device,
        f"offload_param_device needs ZeRO stage 3, and this is stage {stage.value}: parameters stay on the GPU",
        "use zero_stage: 3, or write none",
        level="warning",
    )


def _accelerate_values(root: Node) -> Iterator[Problem]:
    """Values that accelerate or DeepSpeed refuses."""
    if root.get("compute_environment") is None:
        return
    stage, precision = int_at(root, "deepspeed_config", "zero_stage"), text_at(root, "mixed_precision")
    if stage is not None and stage.known and stage.value not in _STAGES:
        yield problem(stage, f"there is no ZeRO stage {stage.value}", "use 0, 1, 2 or 3")
    if precision is not None and precision.known and precision.value.lower() not in (*_PRECISIONS, *_UNSET):
        yield problem(precision, f"accelerate has no mixed precision {precision.value}", "use no, fp16, bf16 or fp8")


def _offloads(node: Node) -> bool:
    device = node.get("device")
    return device is not None and device.text in ("cpu", "nvme")


def _schedule(root: Node) -> Iterator[Problem]:
    warmup: Value[int] | None = int_at(root, "scheduler", "params", "warmup_num_steps")
    total = int_at(root, "scheduler", "params", "total_num_steps")
    if warmup is not None and total is not None and warmup.known and total.known and warmup.value > total.value:
        yield problem(
            warmup,
            f"a warm-up of {warmup.value:,} steps in a schedule of {total.value:,}: the peak is never reached",
            f"warm up for about {max(1, total.value // 20):,}",
        )
