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
_LENGTH = "total_num_steps"
_OTHER_LENGTHS = ("num_training_steps", "total_training_steps", "max_train_steps", "max_steps")  # of other programs
# Where DeepSpeed calculates with what is written, and the Hugging Face Trainer replaces "auto".
_NO_WORDS = (
    ("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",),
    ("gradient_clipping",), ("optimizer", "params", "lr"), ("scheduler", "params", "warmup_num_steps"),
)  # fmt: skip
_FILLED = ("lr", "betas", "eps", "weight_decay")


def uses_deepspeed(root: Node) -> bool:
    """Whether accelerate reads the section `deepspeed_config`, which files of other kinds still have."""
    kind = text_at(root, "distributed_type")
    return root.get("compute_environment") is not None and kind is not None and kind.value == "DEEPSPEED"


def names_a_file(root: Node) -> bool:
    """Whether a configuration of accelerate leaves DeepSpeed's own to another file."""
    file = text_at(root, "deepspeed_config", "deepspeed_config_file")
    return uses_deepspeed(root) and file is not None and file.value.lower() not in ("", "none")


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
    meant = kind.value
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
    if meant:
        yield from _parameters(root, root.get("optimizer", "params"), meant)


def is_filled_in(root: Node) -> bool:
    """Whether a program completes the file: it leaves "auto" in places where DeepSpeed takes no word."""
    return any((value := root.get(*path)) is not None and value.text == "auto" for path in _NO_WORDS)


def _parameters(root: Node, params: Node | None, kind: str) -> Iterator[Problem]:
    names = table("deepspeed")["optimizers"]["parameters"]
    for key, _ in params.items() if params is not None and params.is_map else ():
        meant = _OTHER_NAMES.get(key) or (nearest(key, names, _NEAR_MISS) if key not in names else "")
        if params is None or (not meant and key not in (*_CLIPPING, *table("deepspeed")["top"])):
            continue
        yield problem(
            params.key_span(key),
            f"{kind} has no parameter {key}: DeepSpeed stops, unless the script passes an optimizer of its own",
            to_the_top(root, key) if not meant or key in _CLIPPING else _rename(root, params, meant),
            level="warning",
            why=reasons.CLIPPING_OF_AN_OPTIMIZER if key == _CLIPPING[0] else reasons.OPTIMIZER_PARAMETER,
        )


def _rename(root: Node, params: Node, meant: str) -> str:
    if params.get(meant) is not None:
        return "remove it"
    return f'write "{meant}": "auto" instead' if meant in _FILLED and is_filled_in(root) else f"write {meant}"


def to_the_top(root: Node, key: str) -> str:
    """What to do about a key that belongs at the top of the file."""
    name = _CLIPPING[1] if key in _CLIPPING else key
    if root.get(name) is not None:
        return f"remove it: {name} at the top does it"
    if is_filled_in(root) and (name,) in _NO_WORDS:
        return f'remove it, and write "{name}": "auto" at the top of the file: the Trainer has its own value'
    return "move it to the top of the file" + (f", as {name}" if name != key else "")


def _scheduler(root: Node) -> Iterator[Problem]:
    kind, known = text_at(root, "scheduler", "type"), table("deepspeed")["schedulers"]
    names = [*known["own"], *known["torch"]]
    if kind is None or not kind.known:
        return
    if kind.value in names:
        yield from _of_schedule(root, kind)
        return
    meant = _misspelt(kind.value, names)
    if meant:
        rest = _changes(root, meant) if meant in known["own"] else [f"give it the parameters of torch's {meant}"]
        yield problem(
            kind,
            f"neither DeepSpeed nor torch.optim.lr_scheduler has {kind.value}: DeepSpeed stops, unless the script "
            "passes a schedule of its own",
            f"did you mean {meant}?" + (f" Then {' and '.join(rest)}" if rest else ""),
            level="warning",
            why=reasons.UNKNOWN_SCHEDULER,
        )


def _of_schedule(root: Node, kind: Value[str]) -> Iterator[Problem]:
    """The parameters of a schedule of DeepSpeed's own; `total_num_steps` of WarmupLR is said elsewhere."""
    params, changes = root.get("scheduler", "params"), _changes(root, kind.value)
    if not changes:
        return
    names = table("deepspeed")["schedulers"]["parameters"][kind.value]
    unknown = [key for key in _given(params) if key not in (*names, _LENGTH)]
    parts = [f"has no parameter{'s' if len(unknown) > 1 else ''} {' and '.join(unknown)}"] if unknown else []
    parts += [f"needs {_LENGTH}"] if _lacks_length(params, kind.value) else []
    yield problem(
        params.key_span(unknown[0]) if params is not None and unknown else kind,
        f"{kind.value} {' and '.join(parts)}: DeepSpeed stops, unless the script passes a schedule of its own",
        " and ".join(changes),
        level="warning",
        why=reasons.SCHEDULE_PARAMETER,
    )


def _changes(root: Node, kind: str) -> list[str]:
    """All that the parameters of a schedule need before DeepSpeed takes them."""
    names, params = table("deepspeed")["schedulers"]["parameters"].get(kind), root.get("scheduler", "params")
    if names is None or (params is not None and not params.is_map):
        return []
    taken, changes = _given(params), []
    for key in [key for key in taken if key not in (*names, _LENGTH)]:
        near = _parameter_of(key, names, taken)
        changes.append(_change(kind, key, near))
        taken.append(near)  # which another key cannot become too
    if _lacks_length(params, kind) and _LENGTH not in taken:
        changes.append(f'add "{_LENGTH}": "auto"' if is_filled_in(root) else f"add {_LENGTH}, the steps of the run")
    return changes


def _parameter_of(key: str, names: list[str], taken: list[str]) -> str:
    """The parameter that a key means: of the same words (num_warmup_steps), what other programs call so, or alike in
    writing."""
    same = [name for name in names if sorted(name.split("_")) == sorted(key.split("_"))]
    same += [_LENGTH] if key in _OTHER_LENGTHS and _LENGTH in names else []
    near = same[0] if same else nearest(key, names, _ALIKE)
    return near if near not in taken else ""


def _change(kind: str, key: str, near: str) -> str:
    if kind == "WarmupCosineLR" and key == "warmup_max_lr":
        return f"remove {key} (the maximum is lr of the optimizer)"
    if not near:
        return f"remove {key}"
    return f"write {near}{', a fraction of lr of the optimizer,' if near.endswith('_ratio') else ''} for {key}"


def _given(params: Node | None) -> list[str]:
    return [key for key, _ in params.items()] if params is not None and params.is_map else []


def _lacks_length(params: Node | None, kind: str) -> bool:
    return kind in _NAMED_A_LENGTH and _LENGTH not in _given(params)


def without_path(root: Node, name: str) -> Iterator[Problem]:
    """States or parameters that ZeRO-3 is to swap to NVMe, with no directory for them."""
    device, path = text_at(root, "zero_optimization", name, "device"), text_at(root, "zero_optimization", name, _PATH)
    stage = text_at(root, "zero_optimization", "stage")
    if device is None or device.value != "nvme" or stage is None or stage.value not in ("1", "2", "3"):
        return
    if stage.value != "3":
        if name == "offload_optimizer":
            yield in_host_memory(device, name, stage.value)
        return
    if path is None or (path.known and path.value.lower() in ("", "null", "~")):
        yield problem(
            device,
            f"{name} to nvme without {_PATH}: DeepSpeed stops",
            f"add {_PATH}, a directory on a local disk of every node",
            why=reasons.NO_NVME_PATH,
        )


def in_host_memory(device: Value[str], name: str, stage: str) -> Problem:
    """What DeepSpeed 0.19.8 makes of nvme in a stage below 3: neither a path nor a disk is used."""
    what = f"{name} is nvme, which needs ZeRO stage 3: in stage {stage} the states are in the host's memory"
    return problem(
        device,
        what,
        "write cpu, or use stage 3 with a path on a local disk",
        level="info",
        why=reasons.STATES_IN_HOST_MEMORY,
    )


def _misspelt(name: str, known: Iterable[str]) -> str:
    """The known name that was meant. One that differs in its first letter may be another thing: CAdamW, DAdam."""
    if _OF_THE_TRAINER.fullmatch(name):
        return "AdamW"
    alike = [one for one in known if one[:1].lower() == name[:1].lower()]
    same = [one for one in alike if one.lower() == name.lower()]
    return same[0] if same else nearest(name, alike, _ALIKE)
