"""CFG: keys of trainers' configuration files that the trainer refuses or ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table
from trainwright.check import reasons
from trainwright.check.launches.named_configs import states_beside
from trainwright.check.model import File
from trainwright.check.readers.trainer_config import trainer_of
from trainwright.check.readers.values import bool_at, text_at, value_at
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfg_torchtitan import misspelt_keys
from trainwright.check.rules.dsp_keys import did_you_mean
from trainwright.check.rules.dsp_values import names_a_file
from trainwright.check.used_configs import is_without_deepspeed
from trainwright.errors import listed, nearest
from trainwright.spec.source import Node

_TABLE = Path(__file__).parents[1] / "data" / "trainer_keys.csv"
_SECTIONS = ("deepspeed_config", "fsdp_config")
# The distributed_type that reads a section.
_READ_BY = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "megatron_lm_config": "MEGATRON_LM"}
_NEAR_MISS = 0.85
_LISTED = 4
_FORKED = 2  # a file with more keys of others than this is of a fork of LLaMA-Factory
# What accelerate refuses beside `deepspeed_config_file`, which states it too.
_OF_THE_FILE = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
    "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
_AUTOMATIC = ("gradient_clipping", "gradient_accumulation_steps")  # which take the program's own value otherwise
# What is off without the key.
_OFF = ("fsdp_offload_params", "fsdp_activation_checkpointing", "fsdp_forward_prefetch", "zero3_save_16bit_model")
# Keys of accelerate that other launchers and schedulers name otherwise.
_OF_LAUNCHERS = {
    "nproc_per_node": "num_processes", "num_gpus": "num_processes", "n_gpus": "num_processes",
    "num_nodes": "num_machines", "nnodes": "num_machines", "node_rank": "machine_rank",
    "master_addr": "main_process_ip", "master_port": "main_process_port",
}  # fmt: skip
_TWO_PLACES = "accelerate stops with a ValueError on every rank, after the nodes were allocated and the model was read."


@cache
def keys() -> Mapping[str, frozenset[str]]:
    """Program, or program and section -> the keys that some version takes."""
    return {row["program"]: frozenset(row["keys"].split()) for row in read_table(_TABLE).records()}


@rule("CFG006", "error")
def trainer_takes_every_key(file: File) -> Iterator[Problem]:
    """The trainer must take every key of its configuration file.

    accelerate stops at a key at the top of its file that it does not have, and ignores one in `fsdp_config` or
    `deepspeed_config` (a warning, where it resembles one that exists, and the `distributed_type` is FSDP or DEEPSPEED:
    accelerate leaves the section of another type aside). Beside `deepspeed_config_file` it refuses what
    that file states too: accumulation, clipping, ZeRO stage, offload and, unless the launcher is given its own,
    `mixed_precision`. LLaMA-Factory stops at a key that it does not have; one that resembles none of its keys may be of
    a fork, and is a note. It also stops at `bf16` together with `fp16`. Of accelerate, some values are compared too:
    distributed_type, dynamo_backend, and of FSDP the sharding strategy, wrap policy, prefetch and kind of state dict.
    Of torchtitan's TOML files, keys that no release has and that are one letter from a key of the same section.

    Why: the launcher stops after the nodes were allocated (55 USD per hour for each p5.48xlarge); a key that is ignored
    leaves its default, such as no clipping.

    Fix: the key that the message proposes.

    Source: `ClusterConfig` and `launch_command` of accelerate 0.3 to 1.15, DeepSpeedPlugin since 0.16; the argument
    classes of LLaMA-Factory 0.7 to 0.9.5 and of transformers 4.37 to 5.22; torchtitan 0.1 to 0.2.2.

    When to ignore: you use a fork that added the key.
    """
    for root in file.nodes if file.format == "trainer_config" and not file.template else ():
        trainer = trainer_of(root)
        if trainer == "accelerate":
            yield from _refused_by_accelerate(root)
            yield from _ignored_by_accelerate(root)
            yield from _stated_twice(file, root)
            yield from _refused_values(file, root)
        elif trainer == "LLaMA-Factory":
            yield from _refused_by_llama_factory(root)
        elif trainer == "torchtitan" and file.path.endswith(".toml"):
            yield from misspelt_keys(root)


def _refused_by_accelerate(root: Node) -> Iterator[Problem]:
    known = keys()["accelerate"]
    unknown = [name for name, _ in root.items() if name not in known]
    if not unknown:
        return
    what = f"key {unknown[0]}" if len(unknown) == 1 else f"keys {listed(unknown, _LISTED)}"
    yield problem(
        root.key_span(unknown[0]),
        f"accelerate has no {what}: it refuses the file",
        _instead(root, unknown),
        level="info" if len(unknown) * 2 > len(root.value) else None,  # a file of several programs, or of another
    )


def _instead(root: Node, unknown: list[str]) -> str:
    """What to do about every key, because accelerate refuses the file while one is left."""
    if len(unknown) == 1:
        section, near = _section_of(unknown[0]), _meant(root, unknown[0], "accelerate")
        if section and root.get(section, unknown[0]) is not None:
            return f"remove it: {section} has it"
        if section and not _is_read(root, section) and unknown[0] in _AUTOMATIC:
            return "remove it: outside of DeepSpeed the program states it"
        if section and not _is_read(root, section):
            return f"remove it, or write it in {section} with distributed_type: {_READ_BY[section]}"
        if section:
            return f"write it in {_place(root, unknown[0])}{_refused_beside(root, unknown[0])}"
        return f"did you mean {near}?" if near else "remove it"
    said, taken, twice = [], {""}, ""
    for name in unknown:
        section, near = _section_of(name), _meant(root, name, "accelerate")
        if _is_read(root, section) and root.get(section, name) is None:
            said.append(f"{name} in {_place(root, name)}")
            twice = twice or _refused_beside(root, name)
        elif not section and near not in taken:
            said.append(f"{near} for {name}")
            taken.add(near)
    if not said:
        return "remove them"
    return f"write {', '.join(said)}{twice}" + ("; remove the others" if len(said) < len(unknown) else "")


def _refused_beside(root: Node, name: str) -> str:
    """What accelerate refuses as soon as the section names DeepSpeed's own file."""
    section, precision = root.get("deepspeed_config"), value_at(root, "mixed_precision")
    if name != "deepspeed_config_file":
        return ""
    twice = [key for key, _ in section.items() if key in _OF_THE_FILE] if section is not None and section.is_map else []
    twice += ["mixed_precision"] if precision is not None and precision.value is not None else []
    return f", and state {listed(twice, _LISTED)} in that file only" if twice else ""


def _meant(root: Node, name: str, program: str) -> str:
    """The key that a name resembles, unless the file has that one too."""
    near = (_OF_LAUNCHERS.get(name) if program == "accelerate" else "") or nearest(name, keys()[program], _NEAR_MISS)
    return near if root.get(near) is None else ""


def _section_of(name: str) -> str:
    if name.startswith("megatron_lm_"):
        return "megatron_lm_config"
    return next((section for section in _SECTIONS if name in keys()[f"accelerate {section}"]), "")


def _is_read(root: Node, section: str) -> bool:
    """Whether accelerate reads a section; it leaves those of other types aside."""
    kind = text_at(root, "distributed_type")
    return kind is not None and kind.value == _READ_BY.get(section)


def _place(root: Node, name: str) -> str:
    return "the file of deepspeed_config_file" if names_a_file(root) and name in _OF_THE_FILE else _section_of(name)


def _ignored_by_accelerate(root: Node) -> Iterator[Problem]:
    for name in _SECTIONS:
        section = root.get(name)
        if section is None or not section.is_map or not _is_read(root, name):
            continue
        known = keys()[f"accelerate {name}"]
        for key, _ in section.items():
            whole = key if name != "fsdp_config" or key.startswith("fsdp") else f"fsdp_{key}"
            near = nearest(whole, known, _NEAR_MISS) if whole not in known else ""
            if near and section.get(near) is None:
                idle = near in _AUTOMATIC or (near in _OFF and section.value[key].text.lower() == "false")
                what = f"accelerate ignores {key}: {name} has no such key"
                yield problem(
                    section.key_span(key),
                    what,
                    did_you_mean(near) + _refused_beside(root, near).replace(", and", " Then", 1),
                    level="info" if idle else "warning",
                    why=reasons.IGNORED_BY_ACCELERATE,
                )


# Where the values stand that accelerate compares with a list of its own.
_OF_FSDP = ("fsdp_sharding_strategy", "fsdp_auto_wrap_policy", "fsdp_backward_prefetch", "fsdp_state_dict_type")
_CHOSEN = (("distributed_type",), ("dynamo_backend",), ("dynamo_config", "dynamo_backend"))
_TYPES = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA")
_NEAR_TYPE = 0.92  # MULTI_TPU is not MULTI_GPU
_ALIKE = 0.7


def _refused_values(file: File, root: Node) -> Iterator[Problem]:
    """Values that no release of accelerate takes. FSDP 2 has no sharding strategy and leaves it aside."""
    second = text_at(root, "fsdp_config", "fsdp_version")
    fsdp = [("fsdp_config", key) for key in _OF_FSDP] if _is_read(root, "fsdp_config") else []
    for path in (*_CHOSEN, *fsdp):
        value, known = text_at(root, *path), keys()[f"accelerate values of {path[-1]}"]
        aside = path[-1] == _OF_FSDP[0] and second is not None and second.value != "1"
        if value is None or not value.known or aside or value.value.lower() in ("", "none", "null", "~"):
            continue
        written = value.value if path[-1] == "distributed_type" else value.value.upper().lstrip("_")
        if written in known or written.isdigit() or states_beside(file.path, path[-1]):
            continue
        fix = _type_of(written) if path[-1] == "distributed_type" else _value_of(written, known)
        yield problem(
            value, f"accelerate has no {path[-1]} {value.value}: it stops", fix, why=reasons.REFUSED_BY_ACCELERATE
        )


def _type_of(written: str) -> str:
    """A type is proposed only where the two differ in writing: another one is another program."""
    letters = re.sub(r"[\W_]", "", written).upper()
    if letters == "FSDP2":
        return "write FSDP, and fsdp_version: 2 in fsdp_config"
    if letters in ("DDP", "DISTRIBUTEDDATAPARALLEL"):
        return "write MULTI_GPU"
    same = next((one for one in _TYPES if one.replace("_", "") == letters), "") or nearest(written, _TYPES, _NEAR_TYPE)
    return f"write {same}" if same else f"use {', '.join(_TYPES)}"


def _value_of(written: str, known: frozenset[str]) -> str:
    begun = [one for one in known if one.startswith(f"{written}_")]
    near = begun[0] if len(begun) == 1 else nearest(written, known, _ALIKE)
    return f"write {near}" if near else f"use {', '.join(sorted(known))}"


def _stated_twice(file: File, root: Node) -> Iterator[Problem]:
    """The keys that stand both here and in DeepSpeed's own file."""
    section = root.get("deepspeed_config")
    if section is None or not names_a_file(root) or is_without_deepspeed(file.path):
        return
    twice = [key for key, _ in section.items() if key in _OF_THE_FILE]
    precision = value_at(root, "mixed_precision")
    stated = precision is not None and precision.known and precision.value is not None
    if twice:
        what = f"accelerate refuses {listed(twice, _LISTED)} beside deepspeed_config_file"
        also = ", and mixed_precision too" if stated else ""  # which would be refused next
        fix = f"state {'it' if len(twice) == 1 else 'them'} in that file only{also}"
        yield problem(section.key_span(twice[0]), what, fix, why=_TWO_PLACES)
    elif precision is not None and stated and not states_beside(file.path, "mixed_precision"):
        half = precision.value in ("fp16", "bf16")
        yield problem(
            precision,
            "accelerate refuses mixed_precision beside deepspeed_config_file",
            "remove it" + (f": {_AGREES}" if half else ""),
            level="warning",  # the launcher may be given --mixed_precision
            why=_TWO_PLACES,
        )


_AGREES = "fp16 or bf16 of that file holds, and has to agree with the program's own option"


def _refused_by_llama_factory(root: Node) -> Iterator[Problem]:
    known = keys()["LLaMA-Factory"]
    unknown = {name: nearest(name, known, _NEAR_MISS) for name, _ in root.items() if name not in known}
    forked = sum(not near for near in unknown.values()) > _FORKED
    for name, near in unknown.items():
        yield problem(
            root.key_span(name),
            f"LLaMA-Factory has no key {name}: it stops" if near else f"LLaMA-Factory 0.7 to 0.9.5 has no key {name}",
            (f"did you mean {near}?" if root.get(near) is None else f"remove it: the file has {near}")
            if near
            else "remove it, unless a fork has it",
            level=None if near and not forked else "info",
        )
    half, brain = bool_at(root, "fp16"), bool_at(root, "bf16")
    if half is not None and brain is not None and half.value is True and brain.value is True:
        later = max(half, brain, key=lambda value: value.span.line)
        yield problem(later, "fp16 and bf16 together: LLaMA-Factory stops", "keep one of the two")
