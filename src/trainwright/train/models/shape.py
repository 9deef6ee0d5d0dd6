"""The shape of a model: the few numbers that fix its parameters, its FLOPs and its memory. Free of torch, so that
the control side (check, predict) can read the same shapes as the trainer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.errors import UserError, did_you_mean

SHAPES_FILE = Path(__file__).with_name("shapes.toml")
DEBUG = "-debug"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One published model, or a user's own. Defaults are the plain pre-norm decoder without biases (Llama-like)."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    kind: str = "decoder"  # decoder | encoder | encoder-decoder | vision
    head_dim: int = 0  # 0: hidden // heads
    activation: str = "swiglu"  # swiglu | gelu | gelu-tanh | relu
    norm: str = "rmsnorm"  # rmsnorm | layernorm
    norm_eps: float = 1e-5
    norm_bias: bool = False  # LayerNorm with a bias (GPT, Falcon) or without (MPT)
    position: str = "rope"  # rope | learned | alibi | relative | none
    rope_theta: float = 10_000.0
    rope_scaling: tuple[float, float, float, int] | None = None  # Llama 3.1: factor, low, high, original context
    tied: bool = False
    bias: bool = False  # biases on the linear layers
    qkv_bias: bool = False
    parallel_block: bool = False  # attention and MLP read the same input (Falcon)
    parallel_norms: int = 1  # of a parallel block: one shared norm (Falcon 7B) or one each (Falcon 40B)
    window: int = 0  # sliding attention window; 0: none
    experts: int = 0
    experts_per_token: int = 0
    source: str = ""

    @property
    def width_per_head(self) -> int:
        return self.head_dim or self.hidden // self.heads


@cache
def shapes() -> dict[str, ModelShape]:
    """Every shape of the data file, by name."""
    rows = tomllib.loads(SHAPES_FILE.read_text(encoding="utf-8"))
    return {name: shape_from(name, row) for name, row in rows.items()}


def shape_from(name: str, row: dict[str, Any]) -> ModelShape:
    """A shape from one table of the data file (or of a user's own); unknown keys raise a TypeError."""
    values = {**row, "name": name}
    values.setdefault("kv_heads", row["heads"])
    if values.get("rope_scaling") is not None:
        values["rope_scaling"] = tuple(values["rope_scaling"])
    known = {f.name for f in fields(ModelShape)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise TypeError(f"model {name!r}: unknown keys {unknown}")
    return ModelShape(**values)


def lookup(name: str) -> ModelShape:
    """The published shape of that name, or, for `<name>-debug`, its small variant for a laptop."""
    known = shapes()
    if name in known:
        return known[name]
    base = name.removesuffix(DEBUG)
    if base != name and base in known:
        return debug_sibling(known[base])
    fix = did_you_mean(base, known) or "`trainwright catalog list --kind models` names them all"
    raise UserError(f"there is no model named {name!r}", fix=fix)


def debug_sibling(shape: ModelShape) -> ModelShape:
    """A small model with the same features (norms, positions, tying, kind of attention) and similar ratios."""
    group = shape.heads // shape.kv_heads
    kv_heads = 1 if shape.kv_heads == 1 else 4 if group == 1 else 2
    heads = 4 if shape.kv_heads == 1 else kv_heads * min(group, 4)
    hidden = 16 * heads
    ffn = max(16, round(hidden * shape.ffn / shape.hidden / 16) * 16)
    return replace(
        shape,
        name=shape.name + DEBUG,
        layers=4,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=16,
        ffn=ffn,
        vocab=min(shape.vocab, 2048),
        context=min(shape.context, 1024),
        window=min(shape.window, 64),
    )


def parameter_count(shape: ModelShape) -> int:
    """Every trainable number of the model, the embedding and the output head included (a tied head counts once)."""
    tables = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    return tables + position_parameters(shape) + block_parameters(shape) * shape.layers + norm_parameters(shape)


def active_parameter_count(shape: ModelShape) -> int:
    """As `parameter_count`, but only the experts that one token visits."""
    idle = max(0, shape.experts - shape.experts_per_token)
    return parameter_count(shape) - idle * mlp_parameters(shape) * shape.layers


def position_parameters(shape: ModelShape) -> int:
    return shape.context * shape.hidden if shape.position == "learned" else 0


def norm_parameters(shape: ModelShape) -> int:
    return shape.hidden * (2 if shape.norm_bias else 1)


def attention_parameters(shape: ModelShape) -> int:
    inner = shape.heads * shape.width_per_head
    qkv = inner + 2 * shape.kv_heads * shape.width_per_head
    biases = (qkv if shape.bias or shape.qkv_bias else 0) + (shape.hidden if shape.bias else 0)
    return shape.hidden * (qkv + inner) + biases


def mlp_parameters(shape: ModelShape) -> int:
    ups = 2 if shape.activation == "swiglu" else 1
    biases = (ups * shape.ffn + shape.hidden) if shape.bias else 0
    return (ups + 1) * shape.hidden * shape.ffn + biases


def block_parameters(shape: ModelShape) -> int:
    """One layer: attention, MLP (or experts and their router) and the norms."""
    norms = shape.parallel_norms if shape.parallel_block else 2
    mlps = (
        shape.experts * mlp_parameters(shape) + shape.experts * shape.hidden if shape.experts else mlp_parameters(shape)
    )
    return attention_parameters(shape) + mlps + norms * norm_parameters(shape)
