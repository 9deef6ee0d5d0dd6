"""A Hugging Face config.json as a ModelShape, and back. Every key of a config is honoured, has no influence on the
logits, or is refused by name: a key that is not understood gives a model that trains and is wrong. Free of torch."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

from trainwright.errors import UserError, did_you_mean
from trainwright.files import read_regular
from trainwright.train.models.hf_decoders import DECODERS
from trainwright.train.models.hf_encoders import ENCODERS
from trainwright.train.models.hf_families import ABSENT, DENSE, IGNORED, OPTIONAL
from trainwright.train.models.hf_family import Config, Family
from trainwright.train.models.hf_moe import MIXTURES
from trainwright.train.models.hf_t5 import T5
from trainwright.train.models.hf_vision import VISION
from trainwright.train.models.shape import ModelShape, debug_sibling, lookup, shape_from, shapes
from trainwright.train.models.shape_check import require_fit, require_own, require_values

FAMILIES = {**DENSE, **DECODERS, **MIXTURES, **ENCODERS, **VISION, **T5}
OBJECT = 'a Hugging Face config.json, or {"layers": 2, "hidden": 64, …}'
OWN_FAMILIES = {"gpt3": "gpt2", "esm2": "esm"}  # families of the shape table that another model type writes


def shape_from_config(config: Config, name: str, where: str) -> ModelShape:
    """The shape that a config.json describes; a UserError names what the trainer does not compute."""
    kind = str(config.get("model_type", ""))
    family = FAMILIES.get(kind)
    if family is None:
        fix = f"supported: {', '.join(FAMILIES)}"
        near = did_you_mean(kind, FAMILIES)
        raise UserError(f"model type {kind!r} is not supported", where=where, fix=f"{near}; {fix}" if near else fix)
    _refuse_unknown(config, family, kind, where)
    values = {**family.defaults, **{key: value for key, value in config.items() if value is not None}}
    missing = [key for key in family.fields if key not in values and key not in OPTIONAL]
    if missing:
        raise UserError(f"the config has no {missing[0]!r}", where=where, fix=f"a complete config of a {kind} model")
    row = {ours: values[theirs] for theirs, ours in family.fields.items() if theirs in values}
    theirs_of = {ours: theirs for theirs, ours in family.fields.items()}
    require_values({key: value for key, value in row.items() if value is not None}, where, theirs_of)
    row = {**family.features, **row, **family.special({**family.defaults, **config}, where)}
    row = {key: value for key, value in row.items() if value is not None}
    require_fit({"kv_heads": row["heads"], **row}, where, theirs_of)
    return shape_from(name, {"family": kind, "source": where, **row})


def _refuse_unknown(config: Config, family: Family, kind: str, where: str) -> None:
    fixed = {**ABSENT, **family.fixed}
    known = {*family.fields, *family.special_keys, *IGNORED}
    for key, value in config.items():
        if key in known:
            continue
        if key not in fixed:
            raise UserError(
                f"unknown key {key!r} ({value!r}): a {kind} model with it cannot be judged",
                where=where,
                fix="remove it if it does not change the model",
            )
        if value is not None and value != fixed[key]:
            raise UserError(f"{key} = {value!r} is not supported, only {fixed[key]!r}", where=where)


def config_of(shape: ModelShape, dtype: str) -> Config:
    """The config.json of a shape."""
    kind = OWN_FAMILIES.get(shape.family, shape.family)
    family = FAMILIES.get(kind)
    if family is None:
        raise UserError(f"Hugging Face's layout of the {shape.family} family is not known here")
    values = {theirs: getattr(shape, ours) for theirs, ours in family.fields.items()}
    if "head_dim" in values:
        values["head_dim"] = shape.width_per_head
    head = {"model_type": kind, "architectures": [family.architecture], "torch_dtype": dtype, "use_cache": True}
    gated = {"hidden_act": "silu"} if shape.activation == "swiglu" and "hidden_act" in family.fixed else {}
    return {**head, **values, **gated, **family.write(shape)}


def shape_of(config: Config, name: str, where: str = "config.json") -> ModelShape:
    """The shape of a config: the named one, which it must match; else a published one that is equal; else its own."""
    own = shape_from_config(config, name or _name_of(where), where)
    known = {s.name: s for shape in shapes().values() for s in (shape, debug_sibling(shape))}
    if not name:
        published = next((s for s in known.values() if not differences(s, own)), None)
        return own if published is None else _as_bare(published, own)
    wanted = lookup(name)
    apart = differences(wanted, own)
    if apart:
        raise UserError(f"the config is not {name}: {'; '.join(apart)}", where=where, fix="another --model, or none")
    return _as_bare(wanted, own)


def _as_bare(shape: ModelShape, own: ModelShape) -> ModelShape:
    """The shape without its classifier, where the config describes a vision backbone alone."""
    return shape if own.vocab else replace(shape, vocab=0)


def differences(shape: ModelShape, other: ModelShape) -> list[str]:
    """Fields in which two models differ. The context may, unless each position has a parameter; and the layers of
    multi-token prediction, which are not trained and so have no weights here."""
    free = {"name", "family", "source", "mtp_layers", *(() if shape.position == "learned" else ("context",))}
    kinds = [OWN_FAMILIES.get(s.family, s.family) for s in (shape, other)]
    apart = [f"model type is {kinds[1]}, not {kinds[0]}"] if kinds[0] != kinds[1] else []
    for f in fields(ModelShape):
        mine, theirs = getattr(shape, f.name), getattr(other, f.name)
        if f.name == "head_dim":
            mine, theirs = shape.width_per_head, other.width_per_head
        if f.name in ("router_groups", "router_top_groups"):  # one group of experts is no grouping
            mine, theirs = max(mine, 1), max(theirs, 1)
        if f.name == "vocab" and shape.kind == "vision" and 0 in (mine, theirs):
            continue  # a backbone without its classifier
        if f.name not in free and mine != theirs:
            apart.append(f"{f.name} is {theirs}, {shape.name} has {mine}")
    return apart


def shape_of_file(path: Path) -> ModelShape:
    """The model in a JSON file: a Hugging Face config.json (or the folder that holds one), or a shape of our own."""
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(read_regular(path))
    except ValueError as error:
        raise UserError(f"cannot read the model: {error}", where=str(path), fix="a JSON file") from error
    if not isinstance(config, dict):
        raise UserError("the model is not a JSON object", where=str(path), fix=OBJECT)
    if "model_type" in config:
        return shape_from_config(config, _name_of(str(path)), str(path))
    require_own(config, str(path))
    return shape_from(_name_of(str(path)), {"family": "llama", "source": str(path), **config})


def _name_of(where: str) -> str:
    """`my` for my.json; the folder's name for config.json."""
    path = Path(where)
    return path.resolve().parent.name if path.stem == "config" else path.stem
