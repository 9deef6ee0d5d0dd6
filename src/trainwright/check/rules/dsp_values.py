"""DSP: values of DeepSpeed's configuration that its models and optimizers refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trainwright.check import reasons
from trainwright.check.model import Value
from trainwright.check.readers.values import text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.tables import table
from trainwright.errors import nearest
from trainwright.spec.source import Node

_DEVICES = ("none", "cpu", "nvme")
OFFLOADS = ("offload_optimizer", "offload_param")
_GPUS = ("gpu", "cuda")
_PATH = "nvme_path"
_OF_THE_TRAINER = re.compile(r"adamw_(torch|hf|apex|bnb|anyprecision)\w*")  # values of its option --optim
_ALIKE = 0.8
_NEAR_MISS = 0.85
# What other programs call a parameter of torch's and DeepSpeed's optimizers.
_OTHER_NAMES = {"learning_rate": "lr", "epsilon": "eps", "adam_epsilon": "eps"}
_CLIPPING = ("max_grad_norm", "gradient_clipping")
_NAMED_A_LENGTH = ("WarmupDecayLR", "WarmupCosineLR")


def refused_values(root: Node) -> Iterator[Problem]:
    """Devices, and the names of optimizers, their parameters and schedules."""
    for name in OFFLOADS:
        yield from refused_device(text_at(root, "zero_optimization", name, "device"), f"{name}.device")
    yield from _optimizer(root)
    yield from _scheduler(root)


def refused_device(device: Value[str] | None, name: str) -> Iterator[Problem]:
    """A device that parameters or states cannot be offloaded to; what is "auto" is left to DeepSpeed's default."""
    if device is None or not device.known or device.value in (*_DEVICES, "auto", "", "null", "~"):
        return
    meant = "none" if device.value.lower() in _GPUS else nearest(device.value.lower(), _DEVICES, _ALIKE)
    fix = f"write {meant}" if meant else "write none, cpu or nvme"
    yield problem(device, f"{name} cannot be {device.value!r}: DeepSpeed stops", fix, why=reasons.OFFLOAD_DEVICE)


def _optimizer(root: Node) -> Iterator[Problem]:
    kind, known = text_at(root, "optimizer", "type"), table("deepspeed")["optimizers"]
    if kind is None or not kind.known:
        return
    if kind.value.lower() not in known["own"] and kind.value not in known["torch"]:
        meant = _misspelt(kind.value, [*known["titles"], *known["torch"]])
        if meant:
            yield problem(
                kind,
                f"neither DeepSpeed nor torch.optim has an optimizer {kind.value}: DeepSpeed stops, unless the script "
                "passes one of its own",
                f"did you mean {meant}?",
                level="warning",
                why=reasons.UNKNOWN_OPTIMIZER,
            )
        return
    yield from _parameters(root, root.get("optimizer", "params"), kind.value)


def _parameters(root: Node, params: Node | None, kind: str) -> Iterator[Problem]:
    names = table("deepspeed")["optimizers"]["parameters"]
    clips = root.get("gradient_clipping") is not None
    instead = (
        "remove it: gradient_clipping at the top does it" if clips else "write gradient_clipping at the top of the file"
    )
    for key, _ in params.items() if params is not None and params.is_map else ():
        meant = _OTHER_NAMES.get(key) or (nearest(key, names, _NEAR_MISS) if key not in names else "")
        if params is None or (not meant and key not in (*_CLIPPING, *table("deepspeed")["top"])):
            continue
        stated = params.get(meant) is not None if meant else root.get(key) is not None
        fix = "remove it" if stated else f"write {meant}" if meant else "move it to the top of the file"
        yield problem(
            params.key_span(key),
            f"{kind} has no parameter {key}: DeepSpeed stops, unless the script passes an optimizer of its own",
            instead if key in _CLIPPING else fix,
            level="warning",
            why=reasons.CLIPPING_OF_AN_OPTIMIZER if key == _CLIPPING[0] else reasons.OPTIMIZER_PARAMETER,
        )


def _scheduler(root: Node) -> Iterator[Problem]:
    kind, known = text_at(root, "scheduler", "type"), table("deepspeed")["schedulers"]
    names = [*known["own"], *known["torch"]]
    if kind is None or not kind.known:
        return
    if kind.value in names:
        yield from _of_schedule(kind, root.get("scheduler", "params"))
        return
    meant = _misspelt(kind.value, names)
    if meant:
        yield problem(
            kind,
            f"neither DeepSpeed nor torch.optim.lr_scheduler has {kind.value}: DeepSpeed stops, unless the script "
            "passes a schedule of its own",
            f"did you mean {meant}?",
            level="warning",
            why=reasons.UNKNOWN_SCHEDULER,
        )


def _of_schedule(kind: Value[str], params: Node | None) -> Iterator[Problem]:
    """The parameters of a schedule of DeepSpeed's own; `total_num_steps` of WarmupLR is said elsewhere."""
    names = table("deepspeed")["schedulers"]["parameters"].get(kind.value)
    if names is None or (params is not None and not params.is_map):
        return
    given = dict(params.items()) if params is not None else {}
    for key in given:
        if params is None or key in names or key == "total_num_steps":
            continue
        near = nearest(key, names, _ALIKE)
        lr = key == "warmup_max_lr" and kind.value == "WarmupCosineLR"
        fix = "remove it: the maximum is lr of the optimizer" if lr else f"write {near}" if near else "remove it"
        yield problem(
            params.key_span(key),
            f"{kind.value} has no parameter {key}: DeepSpeed stops, unless the script passes a schedule of its own",
            fix,
            level="warning",
            why=reasons.SCHEDULE_PARAMETER,
        )
    if kind.value in _NAMED_A_LENGTH and "total_num_steps" not in given:
        yield problem(
            kind,
            f"{kind.value} without total_num_steps: DeepSpeed stops, unless the script passes a schedule of its own",
            "write total_num_steps, or use WarmupLR, which does not decay",
            level="warning",
            why=reasons.SCHEDULE_PARAMETER,
        )


def without_path(root: Node, name: str) -> Iterator[Problem]:
    """States or parameters that ZeRO-3 is to swap to NVMe, with no directory for them."""
    device, path = text_at(root, "zero_optimization", name, "device"), text_at(root, "zero_optimization", name, _PATH)
    stage = text_at(root, "zero_optimization", "stage")
    if device is None or device.value != "nvme" or stage is None or stage.value != "3":
        return
    if path is None or (path.known and path.value.lower() in ("", "null", "~")):
        yield problem(
            device,
            f"{name} to nvme without {_PATH}: DeepSpeed stops",
            f"add {_PATH}, a directory on a local disk of every node",
            why=reasons.NO_NVME_PATH,
        )


def _misspelt(name: str, known: Iterable[str]) -> str:
    """The known name that was meant. One that differs in its first letter may be another thing: CAdamW, DAdam."""
    if _OF_THE_TRAINER.fullmatch(name):
        return "AdamW"
    alike = [one for one in known if one[:1].lower() == name[:1].lower()]
    same = [one for one in alike if one.lower() == name.lower()]
    return same[0] if same else nearest(name, alike, _ALIKE)
