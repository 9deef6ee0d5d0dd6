"""Each term of a prediction with its formula and numbers, so that a person can check it by hand."""

from __future__ import annotations

from dataclasses import replace

from trainwright.predict.adapters import frozen_bytes, trained_parameters
from trainwright.predict.collectives import all_gather, all_reduce
from trainwright.predict.constants import Constants
from trainwright.predict.goodput import DAY, simulate
from trainwright.predict.memory import activation_bytes, in_flight, layer_parameters, memory, stage_parameters
from trainwright.predict.operators import attention_rates, mean_layer
from trainwright.predict.optimizers import saved_bytes
from trainwright.predict.prediction import Prediction
from trainwright.predict.products import expert_matmul_rate, trainer_matmul_rate
from trainwright.predict.setup import Setup
from trainwright.predict.step import groups_of, step_time
from trainwright.train.flops import matmul_parameters
from trainwright.train.models.shape import parameter_count

G = 2**30


Term = tuple[str, str]


def explain(p: Prediction, c: Constants) -> list[Term]:
    """(term, formula with numbers), in the order in which the step is built up; empty for a measured prediction."""
    s = p.setup
    if s is None:
        return []
    return [*compute_terms(s, c), *communication_terms(s, c), *memory_terms(s, c), *whole_terms(s, p, c)]


def term(name: str, *words: str) -> Term:
    return name, " ".join(words)


def compute_terms(s: Setup, c: Constants) -> list[Term]:
    shape, device = s.shape, s.cluster.device
    rate = trainer_matmul_rate(device, s.profile, s.precision, s.scales, c).sustained
    layer = mean_layer(s, c)
    rates = attention_rates(device, s.profile.attention, shape.width_per_head, s.attended, c)
    weights = (matmul_parameters(shape) - shape.hidden * shape.vocab * (1 + shape.mtp_layers)) / shape.layers
    factor = 4 if s.frozen else 6  # frozen products have no weight gradients
    flops = factor * weights * s.local_tokens / s.plan.tp
    wide = factor * bf16_parameters(s) / shape.layers * s.local_tokens / s.plan.tp
    wide_rate = expert_matmul_rate(device, s.profile, s.precision, s.scales, c).sustained
    ideal = (flops - wide) / rate + wide / wide_rate
    products = layer.products_forward + layer.products_backward
    elementwise = layer.elementwise_forward + layer.elementwise_backward
    return [
        term("tokens per microbatch", f"{s.batch.micro} sequences x {s.batch.sequence} / cp {s.plan.cp}",
             f"= {s.local_tokens:,.0f}"),
        term("matmul rate", f"best measured x sustained {device.sustained(c):.3g} x clock {device.clock(c):.3g}",
             f"= {rate / 1e12:,.0f} TFLOP/s"),
        *bf16_terms(s, wide, wide_rate),
        term("products, one layer", f"{factor} x {weights / 1e6:,.1f} M",
             f"x {s.local_tokens:,.0f} / tp {s.plan.tp}",
             f"= {flops / 1e12:,.2f} TFLOP / matmul rate{'s' if wide else ''} = {ideal * 1e3:.3f} ms;",
             f"with tiling and pipeline fill {products * 1e3:.3f} ms ({ideal / products:.0%})"),
        term("attention, one layer", f"{s.profile.attention}: forward {layer.attention_forward * 1e3:.3f} ms",
             f"at {rates[0] / 1e12:,.0f} TFLOP/s, backward {layer.attention_backward * 1e3:.3f} ms",
             f"at {rates[1] / 1e12:,.0f}"),
        term("elementwise, one layer", f"{s.profile.fusion}: {elementwise * 1e3:.3f} ms",
             f"= bytes / ({device.bandwidth / 1e12:.2f} TB/s x {c.memory_efficiency})"),
    ]  # fmt: skip


def bf16_parameters(s: Setup) -> int:
    """Parameters of routed experts and routers that one token is multiplied with, where those stay in 16 bits."""
    shape = s.shape
    if not shape.experts or s.profile.expert_precision(s.precision) == s.precision:
        return 0
    without = replace(shape, experts=0, experts_per_token=0, ffn=shape.shared_ffn, shared_ffn=0)
    return matmul_parameters(shape) - matmul_parameters(without)


def bf16_terms(s: Setup, flops: float, rate: float) -> list[Term]:
    """What a narrower precision leaves in 16 bits; `flops` of a layer, at that rate, are of experts."""
    if s.precision not in ("fp8", "fp4"):
        return []
    if not flops:
        return [term("stays bf16", "attention scores and the output head")]
    return [
        term("stays bf16", "attention scores, the output head, routed experts and their router;",
             f"experts at {rate / 1e12:,.0f} TFLOP/s, {flops / 1e12:,.2f} TFLOP of each layer")
    ]  # fmt: skip


def communication_terms(s: Setup, c: Constants) -> list[Term]:
    tensor, data, shard = groups_of(s)
    terms = []
    if s.plan.tp > 1:
        size = s.local_tokens * s.shape.hidden * 2
        terms.append((
            "tensor parallel, one exchange",
            f"{size / 1e6:,.1f} MB over {tensor.ranks} ranks at {tensor.inner_rate / 1e9:.0f} GB/s: all-gather "
            f"{all_gather(size, tensor) * 1e3:.3f} ms, twice per layer in each direction",
        ))  # fmt: skip
    if s.plan.cp > 1:
        moved = s.traffic
        behind = "behind attention" if s.context == "ring" else "before and after attention"
        terms.append((
            f"context parallel by {s.context}, one layer",
            f"a rank receives {moved.forward / 1e6:,.1f} MB forward and {moved.backward / 1e6:,.1f} MB backward, "
            f"{behind}; keeps {moved.kept / 1e6:,.1f} MB of keys and values",
        ))  # fmt: skip
    if s.zero >= 2 and shard.ranks > 1:
        size = sum(layer_parameters(s)) * 2
        rate = shard.between.rate * shard.per_domain if shard.domains > 1 else shard.inner_rate
        terms.append((
            "weight gather, one layer",
            f"{size / 1e6:,.1f} MB over {shard.ranks} ranks in {shard.domains} nodes at {rate / 1e9:.0f} GB/s: "
            f"{all_gather(size, shard) * 1e3:.3f} ms, behind {c.overlap_reach:.0%} of the layer's compute",
        ))  # fmt: skip
    elif data.ranks > 1 and not s.frozen:
        size = parameter_count(s.shape) / (s.plan.tp * s.plan.pp) * s.profile.grad_bytes
        terms.append((
            "gradients, once per step",
            f"{size / 1e9:,.2f} GB over {data.ranks} ranks: {all_reduce(size, data) * 1e3:.1f} ms before overlap",
        ))  # fmt: skip
    return terms


def memory_terms(s: Setup, c: Constants) -> list[Term]:
    used = memory(s, c)
    kept = activation_bytes(s, s.recompute)
    rest = (
        f"logits {used.logits / G:.1f}, gathered weights {used.gathered / G:.1f}, buffers {used.overhead / G:.1f} GiB"
    )
    return [
        term("memory: state", f"{sum(stage_parameters(s)) / 1e9:.2f} B parameters on this rank,",
             f"{frozen_bytes(s) if s.frozen else s.profile.state_bytes - saved_bytes(s):.3g} bytes each,",
             *([f"{trained_parameters(s) / 1e6:,.1f} M of adapters,"] if s.adapter_rank else []),
             f"ZeRO-{s.zero} over {s.plan.shard * s.plan.cp} = {used.state / G:.1f} GiB"),
        term("memory: activations", f"{kept / G:.3f} GiB per layer ({s.recompute})",
             f"x {s.shape.layers / s.plan.pp:.3g} layers",
             f"x {in_flight(s):.3g} microbatches in flight, and the layer at hand = {used.activations / G:.1f} GiB"),
        term("memory: rest", rest),
    ]  # fmt: skip


def whole_terms(s: Setup, p: Prediction, c: Constants) -> list[Term]:
    step = step_time(s, c)
    good = p.goodput
    month = 30 * DAY
    stages = f"({s.plan.pp} - 1) / {s.plan.virtual_stages} of the mean stage"
    bubble = f"{step.parts['bubble']:.3f} s of the zero-bubble schedule" if s.zero_bubble else stages
    simulated = simulate(month, good.interval_s, good.stall_s, good.restart_s, good.mean_time_between_failures_s)
    terms = [
        term("one microbatch", f"{step.microbatch * 1e3:,.1f} ms through the slowest of {s.plan.pp} stages"),
        term("step", f"{s.batch.count} x {step.microbatch * 1e3:,.1f} ms",
             f"+ bubble {bubble}",
             f"+ exposed communication, optimizer and fixed cost = {step.total:.3f} s"),
        term("tokens/s", f"{s.tokens:,} / {step.total:.3f} s = {p.tokens_per_s:,.0f};",
             f"/ {p.gpus} GPUs = {p.tokens_per_s_per_gpu:,.1f}"),
        term("goodput", "interval / (e^(restart/M) M (e^((interval+stall)/M) - 1)),",
             f"M = {good.mean_time_between_failures_s / 3600:,.0f} h, interval {good.interval_s:,.0f} s,",
             f"stall {good.stall_s:.1f} s, restart {good.restart_s:.0f} s = {good.effective:.4f}"),
        term("goodput, simulated", f"20 months of training, failure by failure: {simulated:.4f}"),
    ]  # fmt: skip
    if p.cost:
        terms.append((
            "dollars per trillion tokens",
            f"{p.cost.usd_hour:,.2f} / 3600 / ({p.tokens_per_s:,.0f} x {p.goodput.effective:.4f}) x 1e12 = "
            f"{p.cost.usd_per_trillion_tokens:,.0f}",
        ))  # fmt: skip
    return terms
