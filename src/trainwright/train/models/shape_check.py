"""Whether the numbers of a model's file can be a model: types, signs, and numbers that have to divide each other. One
check for the trainer and for predictions. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from trainwright.errors import UserError, did_you_mean
from trainwright.train.models.shape import ModelShape

CHOICES = {
    "kind": ("decoder", "encoder", "encoder-decoder", "vision"),
    "activation": ("swiglu", "swiglu-clamped", "geglu", "gelu", "gelu-tanh", "relu"),
    "norm": ("rmsnorm", "layernorm"),
    "position": ("rope", "learned", "alibi", "relative", "none"),
    "router": ("softmax", "sigmoid"),
    "parallel_norms": (1, 2),
}
SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "context", "image", "patch", "channels")
POSITIVE = (*SIZES, "rope_theta")
MOST = 2**31 - 1
SCALINGS = (1, 4, 6, 7)  # how many numbers rope_scaling has, see rotary.py
KINDS = {f.name: str(f.type) for f in fields(ModelShape)}
DEFAULTS = {f.name: f.default for f in fields(ModelShape) if f.default is not MISSING}
REQUIRED = tuple(f.name for f in fields(ModelShape) if f.default is MISSING and f.name not in ("name", "family"))
Problem = tuple[str, str]  # what is wrong, how to fix it


class WrongModel(UserError):
    """No trainer can compute this model: it is not one."""


def is_own(config: Mapping[str, Any]) -> bool:
    """Whether a model's file has our fields and not those of Hugging Face."""
    return "model_type" not in config and not config.keys().isdisjoint(("layers", "hidden", "heads"))


def require_own(config: Mapping[str, Any], where: str) -> None:
    """Raise the first problem of a file with our fields."""
    unknown = sorted(config.keys() - KINDS.keys())
    if unknown:
        near = did_you_mean(unknown[0], KINDS)
        what = f"a model has no field {unknown[0]!r} (it is {config[unknown[0]]!r})"
        raise WrongModel(what, where=where, fix=near or f"remove {unknown[0]!r}")
    missing = [name for name in REQUIRED if name not in config and name != "kv_heads"]
    if missing:
        example = ", ".join(f'"{name}": N' for name in missing)
        what = f"the model has no {', '.join(map(repr, missing))}"
        raise WrongModel(what, where=where, fix=f"add {example}, or name a Hugging Face config.json")
    require_values(config, where)
    require_fit({"kv_heads": config["heads"], **config}, where)


def require_values(row: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None) -> None:
    """Raise the first value of a wrong type or sign. `keys`: what the file calls our fields, where it differs."""
    for name, value in row.items():
        wrong = _wrong(name, value, row)
        if wrong:
            key = (keys or {}).get(name, name)
            raise WrongModel(f"{key} is {value!r}; {wrong[0]}", where=where, fix=f'"{key}": {wrong[1]}')


def require_fit(row: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None) -> None:
    """Raise the first two numbers that do not fit each other."""
    names = {name: name for name in KINDS} | dict(keys or {})
    problem = next(_misfits({**DEFAULTS, "kind": "decoder", **row}, names), None)
    if problem:
        raise WrongModel(problem[0], where=where, fix=problem[1])


def _wrong(name: str, value: Any, row: Mapping[str, Any]) -> Problem | None:
    """What a value must be, and one that is; None where this one is."""
    kind = KINDS[name]
    if name in CHOICES:
        words = ", ".join(map(_json, CHOICES[name]))
        right = type(value) in (int, str) and value in CHOICES[name]
        return None if right else (f"it must be one of {words}", _json(CHOICES[name][0]))
    if kind == "bool":
        return None if isinstance(value, bool) else ("it must be true or false", "false")
    if kind == "str":
        return None if isinstance(value, str) else ("it must be a text", '"llama"' if name == "family" else '""')
    if name == "rope_scaling":
        right = value is None or (isinstance(value, list | tuple) and _numbers(value) and len(value) in SCALINGS)
        return None if right else (f"it must be a list of {', '.join(map(str, SCALINGS))} numbers", "null")
    least = 1 if name in POSITIVE and not (name == "vocab" and row.get("kind") == "vision") else 0
    whole = kind == "int"
    right = type(value) is int if whole else _numbers([value])
    if right and (least <= value if whole else value > 0 or (value == 0 and not least)) and value <= MOST:
        return None
    noun = "a whole number" if whole else "a number"
    bounds = f"from {least} up" if whole or not least else "above 0"
    limit = f" to {MOST}" if right and value > MOST else ""
    return f"it must be {noun} {bounds}{limit}", str(DEFAULTS.get(name, "N"))


def _numbers(values: Any) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _json(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _misfits(row: Mapping[str, Any], key: Mapping[str, str]) -> Iterator[Problem]:
    yield from _attention_misfits(row, key)
    yield from _expert_misfits(row, key)
    layers = row["layers"]
    for name in ("dense_layers", "window_layers"):
        if row[name] > layers:
            yield f"{key[name]} is {row[name]}, but {key['layers']} is {layers}", f'"{key[name]}": {layers}'
    if row["kind"] == "vision":
        image, patch = row["image"], row["patch"]
        tokens = 1 + (image // patch) ** 2
        if image % patch:
            yield (
                f"{key['image']} is {image}, which {key['patch']} {patch} does not divide",
                f'"{key["image"]}": {max(1, round(image / patch)) * patch}',
            )
        elif row["context"] != tokens:
            yield (
                f"{key['context']} is {row['context']}, but an image of {image} pixels in patches of {patch} has "
                f"{tokens} tokens (with the class token)",
                f'"{key["context"]}": {tokens}',
            )


def _attention_misfits(row: Mapping[str, Any], key: Mapping[str, str]) -> Iterator[Problem]:
    hidden, heads, kv_heads, width = row["hidden"], row["heads"], row["kv_heads"], row["head_dim"]
    rotary = row["position"] == "rope"
    if not width and hidden % heads:
        fitting = [n for n in range(kv_heads, hidden // 2 + 1, kv_heads) if hidden % (2 * n) == 0]
        near = min(fitting, key=lambda n: abs(n - heads), default=None)
        wider = -(-hidden // (2 * heads)) * 2 * heads
        yield (
            f"{key['hidden']} is {hidden}, which {key['heads']} {heads} does not divide",
            (f'"{key["heads"]}": {near}' if near else f'"{key["hidden"]}": {wider}')
            + f', or the width of a head by "{key["head_dim"]}"',
        )
    if heads % kv_heads:
        near = min((n for n in range(1, heads + 1) if heads % n == 0), key=lambda n: abs(n - kv_heads))
        yield (
            f"{key['heads']} is {heads}, which {key['kv_heads']} {kv_heads} does not divide",
            (f'"{key["kv_heads"]}": {near}'),
        )
    width = width or hidden // heads
    turned = row["rope_dim"] or width
    if row["rope_dim"] > width:
        yield f"{key['rope_dim']} is {row['rope_dim']}, but a head has a width of {width}", f'"{key["rope_dim"]}": 0'
    if rotary and turned % 2:
        name = "rope_dim" if row["rope_dim"] else "head_dim"
        yield (
            f"{key[name]} is {turned} ({key['hidden']} {hidden}, {key['heads']} {heads}), and rotary positions need an "
            "even width",
            f'"{key[name]}": {max(2, turned // 2 * 2)}',
        )
    for name in ("rope_dim", "value_dim"):
        if row["latent_kv"] and not row[name]:
            yield f"{key[name]} is 0, but latent attention needs it", f'"{key[name]}": {max(2, width // 2 // 2 * 2)}'
    if row["latent_kv"] and width <= row["rope_dim"]:
        wider = 2 * row["rope_dim"]
        yield f"{key['head_dim']} is {width}, which {key['rope_dim']} {turned} fills", f'"{key["head_dim"]}": {wider}'


def _expert_misfits(row: Mapping[str, Any], key: Mapping[str, str]) -> Iterator[Problem]:
    experts, chosen, groups, best = (
        row[name] for name in ("experts", "experts_per_token", "router_groups", "router_top_groups")
    )
    if chosen > experts or (experts and not chosen):
        fix = f'"{key["experts_per_token"]}": {min(2, experts)}'
        yield f"{key['experts_per_token']} is {chosen}, but {key['experts']} is {experts}", fix
    if not experts:
        if row["dense_layers"]:
            yield (
                f"{key['dense_layers']} is {row['dense_layers']}, but there are no experts",
                (f'"{key["dense_layers"]}": 0'),
            )
        return
    if row["dense_layers"] and not row["dense_ffn"]:
        yield (
            f"{key['dense_ffn']} is 0, but {key['dense_layers']} is {row['dense_layers']}",
            (f'"{key["dense_ffn"]}": {4 * row["hidden"]}'),
        )
    if groups > 1 and experts % groups:
        yield (
            f"{key['experts']} is {experts}, which {key['router_groups']} {groups} does not divide",
            (f'"{key["router_groups"]}": 0'),
        )
    if best > max(groups, 1) or (groups > 1 and chosen > experts // groups * (best or groups)):
        yield (
            f"{key['router_top_groups']} is {best} of {key['router_groups']} {groups}: {chosen} of {experts} experts "
            "cannot be chosen from them",
            f'"{key["router_top_groups"]}": {max(groups, 1)}',
        )
