"""The shape of a model: the few numbers that fix its parameters, its FLOPs and its memory. Free of torch, so that
the control side (check, predict) can read the same shapes as the trainer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from os.path import exists, isdir, isfile  # False for a name that no file system takes, where Path raises
from pathlib import Path
from typing import Any

from trainwright.errors import UserError, did_you_mean

TOKEN_TYPES = {"bert": 2, "roberta": 1}  # encoders with a norm after each residual sum, and their segment embeddings
RESERVED_POSITIONS = {"roberta": 2, "esm2": 2}  # of the context: the first positions stand for padding
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
    activation: str = "swiglu"  # swiglu | swiglu-clamped (GPT-OSS) | geglu (gated, tanh) | gelu | gelu-tanh | relu
    norm: str = "rmsnorm"  # rmsnorm | layernorm
    norm_eps: float = 1e-5
    norm_bias: bool = False  # LayerNorm with a bias (GPT, Falcon) or without (MPT)
    position: str = "rope"  # rope | learned | alibi | relative | none
    rope_theta: float = 10_000.0
    rope_scaling: tuple[float, ...] | None = None  # linear: factor; Llama 3.1: 4 numbers; YaRN: 6 or 7 (see rotary.py)
    tied: bool = False
    bias: bool = False  # biases on all linear layers
    qkv_bias: bool = False
    out_bias: bool = False  # on the output projection of attention
    mlp_bias: bool = False
    norm_offset: bool = False  # RMSNorm multiplies by 1 + weight (Gemma)
    qk_norm: bool = False  # RMSNorm over each head of queries and keys (Qwen 3)
    wide_qk_norm: bool = False  # RMSNorm over all heads of the queries, and of the keys, together (OLMo 2)
    pre_norms: bool = True  # norms of what attention and MLP read
    post_norms: bool = False  # norms of what they add to the residual stream (Gemma 2, OLMo 2)
    parallel_block: bool = False  # attention and MLP read the same input (Falcon)
    parallel_norms: int = 1  # of a parallel block: one shared norm (Falcon 7B) or one each (Falcon 40B)
    window: int = 0  # sliding attention window; 0: none
    full_every: int = 0  # every n-th layer attends to everything, the others to the window; 0: all to the window
    window_theta: float = 0.0  # rotary base of the layers with a window, where it is another one (Gemma 3)
    embed_scale: bool = False  # embeddings are multiplied by the root of `hidden` (Gemma)
    query_scale: float = 0.0  # scores are divided by the root of this; 0: of the head's width
    score_cap: float = 0.0  # attention scores, and logits, as cap * tanh(x / cap) (Gemma 2)
    logit_cap: float = 0.0
    sinks: bool = False  # each head has one more score in its softmax, which belongs to no token (GPT-OSS)
    experts: int = 0
    experts_per_token: int = 0
    router: str = "softmax"  # softmax | sigmoid (DeepSeek V3)
    router_groups: int = 0  # a token's experts come from its best groups of experts only; 0: from all
    router_top_groups: int = 0
    router_normalise: bool = True  # the weights of a token's experts sum to 1 (before `router_scale`)
    router_scale: float = 1.0
    router_bias: bool = False  # a bias that only the choice sees, moved after each step to balance the load
    router_linear_bias: bool = False  # the router is a linear layer with a bias that is trained (GPT-OSS)
    balance_loss: float = 0.0  # weight of the auxiliary loss that balances the load
    shared_ffn: int = 0  # width of the MLP that every token visits beside its experts
    dense_layers: int = 0  # layers of a mixture of experts that have a plain MLP of width dense_ffn
    dense_ffn: int = 0
    window_layers: int = 0  # layers with the sliding window, where not all have it
    latent_q: int = 0  # multi-head latent attention (DeepSeek): rank of the queries, of the keys and values
    latent_kv: int = 0
    rope_dim: int = 0  # the part of a head with rotary positions; 0: all of it
    rope_pairs: bool = False  # rotary positions pair dimension 2i with 2i + 1 (DeepSeek), not i with i + d/2
    value_dim: int = 0  # width of a value under latent attention
    mtp_layers: int = 0  # multi-token prediction: further layers, each with a pass through the output head
    image: int = 224  # vision: pixels of a side, pixels of a patch's side, channels
    patch: int = 16
    channels: int = 3
    source: str = ""

    @property
    def width_per_head(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "swiglu-clamped", "geglu")

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.context - RESERVED_POSITIONS.get(self.family, 0)


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
    """The published shape of that name, or, for `<name>-debug`, its small variant for a laptop; a path of a JSON file
    or of a Hugging Face folder gives the model described there."""
    if name.endswith(".json") and not exists(name):
        fix = "the path of a config.json or of a shape in JSON, or a name of the catalogue"
        raise UserError("there is no such file", where=name, fix=fix)
    if is_file(name):
        from trainwright.train.models.hf_config import shape_of_file

        return shape_of_file(Path(name))
    known = shapes()
    if name in known:
        return known[name]
    base = name.removesuffix(DEBUG)
    if base != name and base in known:
        return debug_sibling(known[base])
    if isdir(name):
        fix = "a folder as transformers saves it, or a shape in JSON"
        raise UserError("the folder has no config.json", where=name, fix=fix)
    fix = (
        did_you_mean(name, [*known, *(other + DEBUG for other in known)])
        or "`trainwright catalog list --kind models` names them all"
    )
    raise UserError(f"there is no model named {name!r}", fix=fix)


def is_published(name: str) -> bool:
    """Whether the name, or the one it is a small variant of, is in the catalogue."""
    return name.removesuffix(DEBUG) in shapes()


def is_file(name: str) -> bool:
    """Whether a model is named by a file instead of by its name in the catalogue."""
    return name.endswith(".json") or isfile(Path(name) / "config.json")


def debug_sibling(shape: ModelShape) -> ModelShape:
    """A small model with the same features (norms, positions, tying, kind of attention) and similar ratios."""
    group = shape.heads // shape.kv_heads
    kv_heads = 1 if shape.kv_heads == 1 else 4 if group == 1 else 2
    heads = 4 if shape.kv_heads == 1 else kv_heads * min(group, 4)
    hidden = 16 * heads
    pixels: dict[str, Any] = {"image": 32, "patch": 8} if shape.kind == "vision" else {}
    widths: dict[str, Any] = {name: _debug_width(shape, name, hidden) for name in ("ffn", "shared_ffn", "dense_ffn")}
    return replace(
        shape,
        name=shape.name + DEBUG,
        layers=4,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        vocab=min(shape.vocab, 2048),
        context=17 if pixels else min(shape.context, 1024),
        window=min(shape.window, 64),
        full_every=min(shape.full_every, 4),
        window_layers=4 - 4 // min(shape.full_every, 4) if shape.full_every else shape.window_layers,
        dense_layers=min(shape.dense_layers, 1),
        experts=min(shape.experts, 16),
        experts_per_token=min(shape.experts_per_token, 4),
        **widths,
        **_debug_head(shape),
        **pixels,
    )


def _debug_width(shape: ModelShape, name: str, hidden: int) -> int:
    """An MLP's width in proportion to `hidden`."""
    width = int(getattr(shape, name))
    return max(16, round(hidden * width / shape.hidden / 16) * 16) if width else 0


def _debug_head(shape: ModelShape) -> dict[str, Any]:
    if shape.latent_kv:
        ranks = {"latent_q": min(shape.latent_q, 48), "latent_kv": 32}
        return {"head_dim": 24, "rope_dim": 8, "value_dim": 16, **ranks}
    return {"head_dim": 16, "rope_dim": 2 * (16 * shape.rope_dim // shape.width_per_head // 2)}


def parameter_count(shape: ModelShape) -> int:
    """Every trainable number of the model, the embedding and the output head included (a tied head counts once)."""
    tables = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    blocks = sum(layers * block_parameters(kind) for layers, kind in layer_kinds(shape))
    return tables + position_parameters(shape) + blocks + norm_parameters(shape)


def layer_kinds(shape: ModelShape) -> tuple[tuple[int, ModelShape], ...]:
    """(number of layers, their shape) of each kind of layer: some layers of a mixture of experts may be plain."""
    if not shape.dense_layers:
        return ((shape.layers, shape),)
    plain = replace(shape, experts=0, experts_per_token=0, shared_ffn=0, ffn=shape.dense_ffn, dense_layers=0)
    return ((shape.layers - shape.dense_layers, replace(shape, dense_layers=0)), (shape.dense_layers, plain))


def layer_shape(shape: ModelShape, layer: int) -> ModelShape:
    """The shape of one layer: the first layers of a mixture of experts may be plain, and some have no window."""
    if layer < shape.dense_layers:
        shape = layer_kinds(shape)[1][1]
    if shape.full_every and (layer + 1) % shape.full_every == 0:
        return replace(shape, window=0, full_every=0)
    return replace(shape, full_every=0)


def active_parameter_count(shape: ModelShape) -> int:
    """As `parameter_count`, but only the experts that one token visits."""
    idle = max(0, shape.experts - shape.experts_per_token)
    return parameter_count(shape) - idle * mlp_parameters(shape) * (shape.layers - shape.dense_layers)


def position_parameters(shape: ModelShape) -> int:
    return shape.context * shape.hidden if shape.position == "learned" else 0


def norm_parameters(shape: ModelShape) -> int:
    return shape.hidden * (2 if shape.norm_bias else 1)


def attention_parameters(shape: ModelShape) -> int:
    if shape.latent_kv:
        return latent_attention_parameters(shape)
    inner = shape.heads * shape.width_per_head
    qkv = inner + 2 * shape.kv_heads * shape.width_per_head
    biases = (qkv if shape.bias or shape.qkv_bias else 0) + (shape.hidden if shape.bias or shape.out_bias else 0)
    return shape.hidden * (qkv + inner) + biases + query_key_norms(shape) + shape.heads * shape.sinks


def query_key_norms(shape: ModelShape) -> int:
    heads = shape.heads + shape.kv_heads if shape.wide_qk_norm else 2 if shape.qk_norm else 0
    return heads * shape.width_per_head


def latent_attention_parameters(shape: ModelShape) -> int:
    """Queries, and keys with values, each through a narrow product, its norm and a wide one; then the output."""
    plain = shape.width_per_head - shape.rope_dim
    narrow = shape.latent_kv + shape.rope_dim
    wide = shape.heads * (plain + shape.value_dim)
    queries = shape.heads * shape.width_per_head
    query = shape.latent_q * (shape.hidden + queries) if shape.latent_q else shape.hidden * queries
    norms = shape.latent_q + shape.latent_kv
    biases = (shape.latent_q + narrow) * shape.qkv_bias + shape.hidden * shape.out_bias
    products = query + shape.hidden * narrow + shape.latent_kv * wide + shape.heads * shape.value_dim * shape.hidden
    return products + norms + biases


def mlp_parameters(shape: ModelShape) -> int:
    ups = 2 if shape.gated else 1
    biases = (ups * shape.ffn + shape.hidden) if shape.bias or shape.mlp_bias else 0
    return (ups + 1) * shape.hidden * shape.ffn + biases


def block_parameters(shape: ModelShape) -> int:
    """One layer: attention, MLP (or experts, the shared one and their router) and the norms."""
    norms = shape.parallel_norms if shape.parallel_block else 2 * (shape.pre_norms + shape.post_norms)
    mlps = mlp_parameters(shape)
    if shape.experts:
        shared = mlp_parameters(replace(shape, ffn=shape.shared_ffn, bias=False, mlp_bias=False))
        mlps = shape.experts * (mlps + shape.hidden + shape.router_linear_bias) + shared
    return attention_parameters(shape) + mlps + norms * norm_parameters(shape)
