"""DSP: keys that DeepSpeed does not have: those it refuses, and those it ignores that look like typing mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.model import known as value_of
from trainwright.check.readers.values import bool_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.dsp_values import to_the_top
from trainwright.check.tables import table
from trainwright.errors import listed, nearest
from trainwright.spec.source import Node

_NEAR_MISS = 0.9
_ZERO = "zero_optimization"
_REPLACED = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
# What the program itself or other programs call an option; at the top the section has no name.
_OTHER_WORDS = {
    ("", "float16"): "fp16", ("wandb", "entity"): "team", ("wandb", "project_name"): "project",
    ("tensorboard", "output_dir"): "output_path", ("tensorboard", "log_dir"): "output_path",
    ("tensor_parallel", "tp_size"): "autotp_size",
    (_ZERO, "stage3_gather_bf16_weights_on_model_save"): "stage3_gather_16bit_weights_on_model_save",
    (_ZERO, "zero_stage"): "stage", (_ZERO, "overlap_communication"): "overlap_comm",
}  # fmt: skip
_PRECISIONS = ("fp16", "bf16", "bfloat16")
_BATCH = " It must then fit the ranks and the other two sizes of a batch; the Trainer stops unless it has its own value"
# What a key brings into effect that another setting is compared with.
_COMPARED = {
    "gradient_clipping": " The Trainer stops unless it is auto or equals max_grad_norm",
    "gradient_accumulation_steps": _BATCH,
    "train_batch_size": _BATCH,
    "train_micro_batch_size_per_gpu": _BATCH,
}
_TOP_SECTIONS = (
    "activation_checkpointing", "aio", "autotuning", "bfloat16", "checkpoint", "compression_training",
    "data_efficiency", "data_types", "eigenvalue", "elasticity", "flops_profiler", "optimizer", "pipeline",
    "progressive_layer_drop", "scheduler", "torch_autocast",
)  # fmt: skip
_SHOWN = 8  # keys of a message
_RENAMED = re.compile(r"^[\W_x]+|[\W_\d]+$")  # what people add to a key to switch it off


def unknown_keys(root: Node) -> Iterator[Problem]:
    """At the top DeepSpeed ignores a key that it does not know; sections with a model of their own refuse it."""
    known = table("deepspeed")
    for key, near in _near_misses(root, known["top"]):
        at = root.keys.get(key) or root.span
        what, fix = f"DeepSpeed ignores {key}: it has no such key", did_you_mean(near)
        if near in _PRECISIONS and _is_on(root, key) and (once := _one_precision(root, near)):
            fix += f" Then {once}"
        idle = root.value[key].text == "false" and near != "zero_force_ds_cpu_optimizer"  # as it is without the key
        yield problem(at, what, fix, level="info" if idle else "warning", why=reasons.IGNORED_BY_DEEPSPEED)
    stage3 = [*known["stage3"], *(f"stage3_{name}" for name in known["stage3"])]
    zero = [*known["zero"], *stage3]
    yield from _misplaced(root, known["top"], zero)
    yield from _of_autotuning(root)
    for name, has in {_ZERO: zero, **known["sections"], "bfloat16": known["sections"]["bf16"]}.items():
        section = root.get(*name.split("."))
        if section is not None and section.is_map:
            yield from _refused(root, name, section, has)
        elif section is not None and name in ("bf16", "fp16") and section.text in ("true", "false", "auto"):
            message = f"{name} is {section.text}, not a section: DeepSpeed stops"
            value = '"auto"' if section.text == "auto" else section.text
            fix = f'write {{"enabled": {value}}}'
            if section.text == "true" and (once := _one_precision(root, name)):
                fix += f' or {{"enabled": false}}: {once}'
            yield problem(section, message, fix)
    yield from _old_and_new(root)
    yield from _removed(root)


def _misplaced(root: Node, top: list[str], zero: list[str]) -> Iterator[Problem]:
    """Keys of zero_optimization at the top, where DeepSpeed does not look for them."""
    keys = [key for key, _ in root.items() if key in zero and key not in top and key != "stage"]
    section = root.get(_ZERO)
    if keys and section is not None and section.is_map:
        one = len(keys) == 1
        what = f"DeepSpeed ignores {_listed(keys)} here: {'it is a key' if one else 'they are keys'} of {_ZERO}"
        twice = [key for key in keys if any(section.get(name) is not None for name in (key, _REPLACED.get(key, key)))]
        fix = f"move {'it' if one else 'them'} into {_ZERO}"
        if twice:
            fix = "remove it" if one else f"{fix}, but remove {_listed(twice)}, which {_ZERO} has"
        idle = all(key in twice or _changes_nothing(section, key, root.value[key]) for key in keys)
        level: Level = "info" if idle else "warning"
        yield problem(root.key_span(keys[0]), what, fix, level=level, why=reasons.IGNORED_BY_DEEPSPEED)


def _changes_nothing(section: Node, key: str, value: Node) -> bool:
    """Whether a key of zero_optimization would have no effect in its place either: its default, or of stage 3."""
    stage, defaults = section.get("stage"), table("deepspeed")["defaults"]
    of_stage_3 = key.startswith("stage3_") or key in (*table("deepspeed")["stage3"], "sub_group_size", "offload_param")
    if of_stage_3 and stage is not None and stage.text in ("0", "1", "2"):
        return True
    if key == "overlap_comm" and stage is not None:
        return value.text == ("true" if stage.text == "3" else "false")
    return value.text == "auto" or (key in defaults and value.text == str(defaults[key]).lower())


def _of_autotuning(root: Node) -> Iterator[Problem]:
    """Keys of autotuning at the top, where they limit nothing."""
    keys = [key for key, _ in root.items() if key in table("deepspeed")["autotuning"]]
    if keys:
        what = f"DeepSpeed reads {_listed(keys)} in the section autotuning only"
        yield problem(root.key_span(keys[0]), what, "move it there, or remove it", level="info")


def did_you_mean(key: str) -> str:
    """The fix for a misspelt key of DeepSpeed."""
    return f"did you mean {key}?{_COMPARED.get(key, '')}"


def _old_and_new(root: Node) -> Iterator[Problem]:
    """A key beside the one that replaced it, whatever their values."""
    zero = root.get(_ZERO)
    for old, new in _REPLACED.items():
        if zero is None or zero.get(old) is None or zero.get(new) is None or zero.value[old].text == "auto":
            continue
        since = table("deepspeed")["since"][_ZERO]
        what = f"{_ZERO} has both {old} and {new}, which replaced it: DeepSpeed stops ({since} and later)"
        yield problem(zero.key_span(old), what, f"remove {old}")


def _one_precision(root: Node, name: str) -> str:
    """What to do about the other precision, once this one is enabled."""
    other = next((one for one in _PRECISIONS if one[0] != name[0] and _is_on(root, one)), "")
    return f"enable {name} or {other}, not both" if other else ""


def _is_on(root: Node, name: str) -> bool:
    section = root.get(name)
    return section is not None and (section.text == "true" or value_of(bool_at(root, name, "enabled")) is True)


def _refused(root: Node, name: str, section: Node, known: list[str]) -> Iterator[Problem]:
    """The keys of one section that its model does not have; those with the value "auto" are dropped before it."""
    unknown = [key for key, value in section.items() if key not in known and value.text != "auto"]
    if not unknown:
        return
    keys = f"key {unknown[0]}" if len(unknown) == 1 else f"keys {_listed(unknown)}"
    releases = table("deepspeed")
    recent, since = releases["recent"].get(name), releases["since"].get(name)
    release = f" since {recent}, and ignored {'it' if len(unknown) == 1 else 'them'} before" if recent else ""
    release = f" ({since} and later)" if since else release
    yield problem(
        section.keys.get(unknown[0]) or section.span,
        f"{name} has no {keys}: DeepSpeed stops{release}",
        _instead(root, name, section, unknown, known),
        level="warning" if recent else None,  # an older release may be meant
    )


def _listed(words: list[str]) -> str:
    if len(words) > _SHOWN:
        return listed(words, _SHOWN)
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _instead(root: Node, name: str, section: Node, unknown: list[str], known: list[str]) -> str:
    sections = table("deepspeed")["sections"]
    if name in ("bf16", "bfloat16") and all(key in sections["fp16"] for key in unknown):
        return "remove it: it is a key of fp16" if len(unknown) == 1 else "remove them: they are keys of fp16"
    shown = [key for key in unknown[:_SHOWN] if _RENAMED.sub("", key) not in known]  # the others were switched off
    alike = {key: _OTHER_WORDS.get((name, key)) or nearest(key, known, 0.8) for key in shown}
    devices = {f"{one}_device": one for one in _REPLACED.values() if name == _ZERO and section.get(one) is None}
    meant = {key: f'"{devices[key]}": {{"device": …}}' for key in shown if key in devices}  # as accelerate writes it
    taken = {"", *(devices[key] for key in meant)}
    for key, near in alike.items():
        if (
            near not in taken
            and section.get(near) is None
            and section.value[key].is_map == (f"{name}.{near}" in sections)
        ):
            meant[key] = near
            taken.add(near)  # which another key cannot become too
    top = [key for key in unknown if key not in meant and _belongs_to_the_top(key)]
    if len(unknown) == 1 and top:
        fix = to_the_top(root, top[0])
        return fix + (f".{_COMPARED[top[0]]}" if top[0] in _COMPARED and fix.startswith("move") else "")
    if meant and len(unknown) == 1:
        key, near = unknown[0], meant[unknown[0]]
        on = near == "enabled" and section.value[key].text == "true" and name in _PRECISIONS
        once = _one_precision(root, name) if on else ""
        return f"did you mean {near}?" + (f" Then {once}" if once else "")
    said = [f"write {_listed([f'{near} for {key}' for key, near in meant.items()])}"] if meant else []
    said += [f"{key}: {to_the_top(root, key)}" for key in top]
    if said:
        return "; ".join([*said, *(["remove the others"] if len(meant) + len(top) < len(unknown) else [])])
    few = f"; {name} has {', '.join(known)}" if len(known) < 7 else ""
    return f"remove {'it' if len(unknown) == 1 else 'them'}{few}"


def _belongs_to_the_top(key: str) -> bool:
    """Whether a key of a section works at the top: one of the precisions may be the second one there."""
    return key in table("deepspeed")["top"] and key not in (*_PRECISIONS, *table("deepspeed")["removed"])


def _removed(root: Node) -> Iterator[Problem]:
    known = table("deepspeed")
    for path in known["removed"]:
        *above, key = path.split(".")
        holder = root.get(*above) if above else root
        if holder is not None and holder.is_map and holder.get(key) is not None:
            yield problem(
                holder.keys.get(key) or holder.span,
                f"DeepSpeed {known['newest']} stops at {path}: what it is for was removed",
                "remove it, or pin an earlier release",
                level="info",
            )


def _near_misses(node: Node, known: list[str]) -> Iterator[tuple[str, str]]:
    for key, _ in node.items():
        if key in known or _RENAMED.sub("", key) in known:
            continue
        near = _OTHER_WORDS.get(("", key)) or nearest(key, known, _NEAR_MISS)
        removed = near in table("deepspeed")["removed"]  # which the newest release refuses
        section = near in (_ZERO, *_TOP_SECTIONS, *table("deepspeed")["sections"])
        if section != node.value[key].is_map:
            continue
        if near and node.get(near) is None and not removed and not _is_longer(key, near):
            yield key, near


def _is_longer(key: str, near: str) -> bool:
    """Whether a key has a word more than another (`max_train_batch_size`), which makes it one of its own."""
    words, others = key.split("_"), near.split("_")
    return len(words) > len(others) and set(others) <= set(words)
