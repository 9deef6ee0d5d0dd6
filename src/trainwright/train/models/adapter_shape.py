"""What LoRA adapts in a model of some shape: which matrices, how many parameters that makes, and up to which rank. Free
of torch, so that `predict` counts and refuses as the trainer does; a test compares it with the modules themselves."""

from __future__ import annotations

from trainwright.errors import UserError
from trainwright.train.models.shape import ModelShape, layer_kinds

Matrix = tuple[int, int]  # rows (outputs), columns (inputs)


def adapted_matrices(shape: ModelShape) -> list[Matrix]:
    """The linear layers of a block that get adapters; stacked experts and routers do not. Of T5: a block of the
    encoder, or one of the decoder without its cross-attention."""
    hidden, width = shape.hidden, shape.width_per_head
    if shape.latent_kv:
        queries = shape.latent_q or hidden
        wide = shape.heads * (width - shape.rope_dim + shape.value_dim)
        attention = [
            (shape.heads * width, queries),
            (shape.latent_kv + shape.rope_dim, hidden),
            (wide, shape.latent_kv),
        ]
        attention += [(shape.latent_q, hidden)] if shape.latent_q else []
    else:
        attention = [(shape.heads * width, hidden), *[(shape.kv_heads * width, hidden)] * 2]
    attention.append((hidden, shape.heads * (shape.value_dim or width)))
    mlp = shape.shared_ffn if shape.experts else shape.ffn
    up = [(mlp, hidden)] * (2 if shape.gated else 1)
    return [*attention, *([*up, (hidden, mlp)] if mlp else [])]


def cross_matrices(shape: ModelShape) -> tuple[list[Matrix], list[Matrix]]:
    """Of a decoder's block of T5: what its own tokens go through, and what the encoder's do, keys and values in one."""
    if shape.kind != "encoder-decoder":
        return [], []
    inner = shape.heads * shape.width_per_head
    return [(inner, shape.hidden), (shape.hidden, inner)], [(2 * inner, shape.hidden)]


def model_matrices(shape: ModelShape) -> list[tuple[int, Matrix]]:
    """(how many, each) of all matrices with adapters."""
    sides = 2 if shape.kind == "encoder-decoder" else 1
    blocks = [(sides * layers, matrix) for layers, kind in layer_kinds(shape) for matrix in adapted_matrices(kind)]
    return blocks + [(shape.layers, matrix) for side in cross_matrices(shape) for matrix in side]


def adapter_parameters(shape: ModelShape, rank: int) -> int:
    """Parameters that are trained, of the whole model: rank x (rows + columns) of each matrix."""
    return rank * sum(count * sum(matrix) for count, matrix in model_matrices(shape))


def refuse_adapters(shape: ModelShape, rank: int, objective: str) -> None:
    """Refuse adapters where parts of the model have to be trained as a whole, and ranks above every width."""
    if rank and objective == "dino":
        what = "--lora-rank with the objective dino, whose heads have to be trained as a whole"
        raise UserError(what, fix="leave --lora-rank out, or --objective classify")
    widest = max(shape.hidden, shape.ffn, shape.dense_ffn, shape.shared_ffn)
    if rank > widest:
        what = f"--lora-rank is {rank}, more than any width of the model: at most {widest}"
        raise UserError(what, fix=f"--lora-rank {min(16, shape.hidden)}")
