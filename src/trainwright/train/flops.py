"""Model FLOPs per token, MFU and peak rates: the one definition that the trainer, the predictor and reports share.

FLOPs per token, forward and backward = 6 x the parameters of matrix products + 12 x layers x heads x head width x keys.
With adapters (LoRA): 4 x the parameters of matrix products, which are frozen and have no weight gradients, + 6 x the
parameters of the adapters + the same attention. A reference (DPO) or teacher (DINO) adds a forward pass: a third.

- Parameters of matrix products: the embedding table is a lookup and does not count; the output head counts, tied or
  not; of a mixture of experts, the router and the experts that one token visits.
- Keys: how many positions one token attends to on average. A causal decoder sees half of the sequence, one with a
  sliding window less, an encoder all of it. Documents packed into one sequence count as one.

Recomputed activations do not count. MFU divides by the dense 16-bit peak of the device, for every precision, so that
figures with bf16 and fp8 compare. Free of torch: the control side imports this module."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trainwright.train.models.adapter_shape import adapted_matrices, adapter_parameters, cross_matrices
from trainwright.train.models.shape import ModelShape, attention_parameters, layer_kinds, mlp_parameters

PEAKS_FILE = Path(__file__).with_name("peaks.csv")
TERA = 1e12


@dataclass(frozen=True, slots=True)
class PeakRates:
    """Dense matrix peaks of one accelerator in FLOP/s; 0: the hardware has no such unit (bf16 on V100 and T4)."""

    name: str  # the catalog's key, as h100
    torch_names: tuple[str, ...]  # how torch.cuda.get_device_name spells it
    bf16: float
    fp16: float
    fp8: float
    fp4: float
    fp32: float
    source: str

    @property
    def mfu(self) -> float:
        """The rate that MFU divides by: dense bf16, or fp16 on hardware older than bf16."""
        return self.bf16 or self.fp16


@cache
def peak_rates() -> dict[str, PeakRates]:
    """Every row of peaks.csv, by name."""
    lines = PEAKS_FILE.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {row["name"]: _rates(row) for row in rows}


def rates_of_device(torch_name: str) -> PeakRates | None:
    """The rates of a device by the name torch reports (`NVIDIA H100 PCIe`); the longest spelling that matches wins."""
    spellings = [(spelling, rates) for rates in peak_rates().values() for spelling in rates.torch_names]
    matches = [(len(spelling), rates) for spelling, rates in spellings if _is_word_of(spelling, torch_name)]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def trained_shape(shape: ModelShape) -> ModelShape:
    """What our trainer computes of a model: all but the layers of multi-token prediction."""
    return replace(shape, mtp_layers=0) if shape.mtp_layers else shape


def flops_per_token(shape: ModelShape, sequence: int, rank: int = 0) -> float:
    """Model FLOPs of one token, forward and backward; `rank` is that of adapters on frozen weights, 0: without."""
    layers = shape.layers + shape.mtp_layers
    attention = 12.0 * layers * shape.heads * score_width(shape) * keys_per_token(shape, sequence)
    return per_weight(rank) * matmul_parameters(shape) + 6.0 * adapter_parameters(shape, rank) + attention


def per_weight(rank: int) -> float:
    """FLOPs per token of a weight in a product: forward, gradient of the input, and of the weight if it is trained."""
    return 4.0 if rank else 6.0


def preference_flops(shape: ModelShape, sequence: int, rank: int = 0) -> float:
    """Of DPO: attention is over one answer, not over the pair; the forward pass of the reference counts too, which with
    adapters is the model without them."""
    return flops_per_token(shape, sequence, rank) + flops_per_token(shape, sequence) / 3


def seq2seq_flops(shape: ModelShape, s: int, t: int, rank: int = 0) -> float:
    """Of T5, with s tokens of the encoder and t of the decoder, per token of both."""
    width, each = shape.heads * shape.width_per_head, per_weight(rank)
    block = each * (attention_parameters(shape) + mlp_parameters(shape))
    block += 6.0 * rank * sum(map(sum, adapted_matrices(shape)))
    ours, theirs = (6.0 * rank * sum(map(sum, side)) for side in cross_matrices(shape))
    cross = each * shape.hidden * width * (2 * t + 2 * s) + 12.0 * width * s * t + t * ours + s * theirs
    layer = s * (block + 12.0 * width * s) + t * (block + 6.0 * width * t) + cross
    return (shape.layers * layer + each * t * shape.hidden * shape.vocab) / (s + t)


def score_width(shape: ModelShape) -> float:
    """Mean width of a head's two products, scores and values; they differ under latent attention."""
    return (shape.width_per_head + (shape.value_dim or shape.width_per_head)) / 2


def matmul_parameters(shape: ModelShape) -> int:
    """The parameters that one token is multiplied with: no embedding table, norm or bias; active experts only."""
    blocks = sum(layers * _block_matmuls(kind) for layers, kind in layer_kinds(shape))
    extra = shape.mtp_layers * (_block_matmuls(layer_kinds(shape)[0][1]) + 2 * shape.hidden * shape.hidden)
    return blocks + extra + (1 + shape.mtp_layers) * shape.hidden * shape.vocab


def _block_matmuls(shape: ModelShape) -> int:
    plain = replace(shape, bias=False, qkv_bias=False, out_bias=False, qk_norm=False, wide_qk_norm=False)
    attention = attention_parameters(plain) - shape.latent_q - shape.latent_kv
    mlp = (3 if shape.gated else 2) * shape.hidden
    width = shape.ffn * shape.experts_per_token + shape.shared_ffn if shape.experts else shape.ffn
    return attention + mlp * width + shape.hidden * shape.experts


def keys_per_token(shape: ModelShape, sequence: int) -> float:
    """Positions one token attends to, on average over the sequence."""
    if shape.kind != "decoder":
        return float(sequence)
    window = min(shape.window or sequence, sequence)
    windowed = window - window * window / (2.0 * sequence)
    if not shape.window_layers:
        return windowed
    share = shape.window_layers / shape.layers
    return share * windowed + (1 - share) * sequence / 2.0


def mfu(tokens_per_s: float, flops: float, peak: float) -> float:
    """Model FLOPs utilisation: `flops` per token at that speed, over the `peak` FLOP/s of all devices together."""
    return tokens_per_s * flops / peak


def _rates(row: dict[str, str]) -> PeakRates:
    numbers = {kind: float(row[f"{kind}_tflops"] or 0) * TERA for kind in ("bf16", "fp16", "fp8", "fp4", "fp32")}
    spellings = tuple(filter(None, row["torch_names"].split("|")))
    return PeakRates(name=row["name"], torch_names=spellings, source=row["source"], **numbers)


def _is_word_of(spelling: str, name: str) -> bool:
    """Whether it stands in the name as whole words: L4 is no part of L40S."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(spelling)}(?![A-Za-z0-9])", name) is not None
