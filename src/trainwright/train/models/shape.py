"""The shape of a model: the few numbers that fix its parameters, its FLOPs and its memory. Free of torch, so that
the control side (check, predict) can read the same shapes as the trainer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

SHAPES_FILE = Path(__file__).with_name("shapes.toml")


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
    position: str = "rope"  # rope | learned | alibi | relative | none
    rope_theta: float = 10_000.0
    rope_scaling: tuple[float, float, float, int] | None = None  # Llama 3.1: factor, low, high, original context
    tied: bool = False
    bias: bool = False  # biases on the linear layers
    qkv_bias: bool = False
    parallel_block: bool = False  # attention and MLP read the same norm (Falcon)
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
    """A shape from one table of the data file (or of a user's own); unknown keys are a TypeError."""
    values = {**row, "name": name}
    values.setdefault("kv_heads", row["heads"])
    if values.get("rope_scaling") is not None:
        values["rope_scaling"] = tuple(values["rope_scaling"])
    known = {f.name for f in fields(ModelShape)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise TypeError(f"model {name!r}: unknown keys {unknown}")
    return ModelShape(**values)
