"""A prediction as text with bars: the answer first, then where the time of a step goes."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.predict.prediction import Prediction

BAR = 40
LABELS = {
    "products": "matrix products", "attention": "attention", "elementwise": "norms, activations", "head": "loss head",
    "recompute": "recomputation", "offload": "activation offload",
    "tensor parallel": "tensor parallel", "context parallel": "context parallel",
    "expert parallel": "expert parallel", "weight gathers": "weight gathers", "gradients": "gradient reduction",
    "pipeline sends": "pipeline sends", "bubble": "pipeline bubble", "imbalance": "uneven stages",
    "optimizer": "optimizer", "fixed": "fixed cost", "stragglers": "wait for slow nodes",
}  # fmt: skip


def seconds(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f} s"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def count(value: float) -> str:
    for limit, unit in ((1e12, " T"), (1e9, " B"), (1e6, " M")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:,.0f}"


def bar(share: float) -> str:
    return "#" * max(1 if share > 0.002 else 0, round(share * BAR))


def headline(p: Prediction) -> str:
    where, unit = (f"{p.nodes} x {p.instance}", f"{p.unit}s") if p.instance else ("this machine", "processes")
    sample = f"images of {p.sample_tokens} tokens in all crops" if p.counts_images else f"sequences of {p.sequence}"
    scales = p.setup.scales if p.setup else ""
    return (
        f"{p.model} on {where} ({p.gpus} {unit}), plan {p.plan}, {f'{p.precision} {scales}'.rstrip()}, "
        f"trainer {p.trainer}\n"
        f"{count(p.tokens_per_step)} tokens per step: {sample}, microbatch {p.micro_batch} x "
        f"{p.microbatches}, recompute {p.recompute}"
    )


def facts(p: Prediction) -> list[tuple[str, str]]:
    """(name, value) of each line of the answer."""
    one = p.unit if p.instance else "process"
    low, high = p.step_time_s * p.tokens_per_s_per_gpu / p.high, p.step_time_s * p.tokens_per_s_per_gpu / p.low
    lines = [
        ("step", f"{seconds(p.step_time_s)}  ({seconds(low)} to {seconds(high)}, 80 % interval)"),
        (
            "tokens/s",
            f"{p.tokens_per_s:,.0f}, {p.tokens_per_s_per_gpu:,.0f} per {one}  ({p.low:,.0f} to {p.high:,.0f})",
        ),
        *([("images/s", f"{p.tokens_per_s / p.sample_tokens:,.0f}")] if p.counts_images else []),
        ("MFU", f"{p.mfu:.1%}" + ("" if p.precision in ("bf16", "fp32") else " of the 16-bit peak")),
        ("memory", f"{p.memory_gib:.1f} of {p.memory_limit_gib:.1f} GiB per {one}: {FITS[p.fits_gpu]}"),
        *([("host memory", host_text(p))] if p.host_gib else []),
        ("communication", f"{seconds(p.exposed_communication_s)} exposed, {seconds(p.hidden_communication_s)} hidden"),
    ]
    if p.instance:
        g = p.goodput
        lines.append(
            ("goodput", f"{g.effective:.1%}: {g.failures_per_day:.2g} failures per day, checkpoint every "
             f"{g.interval_s / 60:.0f} min ({g.stall_s:.1f} s stall)")
        )  # fmt: skip
        lines.append(
            ("data", f"read {p.needs.read_gb_s * 1e3:.2f} MB/s; checkpoint {p.needs.checkpoint_gb:,.0f} GB, "
             f"needs {p.needs.write_gb_s:.1f} GB/s{'; ' + p.needs.advice if p.needs.advice else ''}")
        )  # fmt: skip
    if p.cost:
        lines.append(
            ("cost", f"${p.cost.usd_hour:,.2f} per hour, ${p.cost.usd_per_trillion_tokens:,.0f} per trillion tokens "
             f"({p.cost.kind}, {p.cost.region}, prices of {p.cost.date})")
        )  # fmt: skip
    if p.storage_usd_month is not None:
        lines.append(("storage", f"${p.storage_usd_month:,.0f} per month"))
    if p.train_days is not None and p.train_tokens:
        money = f", ${p.train_usd:,.0f}" if p.train_usd is not None else ""
        lines.append(("training", f"{count(p.train_tokens)} tokens in {p.train_days:,.1f} days{money}"))
    if p.outside_evidence:
        lines.append(("wider interval", "because of " + "; ".join(p.outside_evidence)))
    return lines


def host_text(p: Prediction) -> str:
    limit = f" of {p.host_limit_gib:.1f}" if p.host_limit_gib else ""
    fits = "" if p.fits_host else f": {FITS['no']}"
    return f"{p.host_gib:.1f}{limit} GiB per {p.unit} for offloaded activations{fits}"


FITS = {"yes": "fits", "tight": "TIGHT, may run out", "no": "DOES NOT FIT"}


def where_it_goes(p: Prediction) -> str:
    shares = ((value / p.step_time_s, name) for name, value in p.parts.items())
    parts = sorted((pair for pair in shares if pair[0] > 0.002), reverse=True)
    lines = [
        f"  {LABELS.get(name, name):20s} {bar(share):{BAR}s} {share:6.1%}  {seconds(share * p.step_time_s)}"
        for share, name in parts
    ]
    return "\n".join(lines)


def text(p: Prediction) -> str:
    wide = max(len(name) for name, _ in facts(p))
    answer = "\n".join(f"  {name:{wide}s}  {value}" for name, value in facts(p))
    return f"{headline(p)}\n\n{answer}\n\nwhere the step goes\n{where_it_goes(p)}\n"


def comparison(plans: Sequence[Prediction]) -> str:
    """Several plans side by side, the fastest marked."""
    best = max(p.tokens_per_s for p in plans)
    header = [
        "plan", "micro x count", "recompute", "step", "tokens/s/GPU", "MFU", "memory GiB", "fits", "exposed", "bubble",
        "vs best",
    ]  # fmt: skip
    rows = [
        [
            p.plan, f"{p.micro_batch} x {p.microbatches}", p.recompute, seconds(p.step_time_s),
            f"{p.tokens_per_s_per_gpu:,.0f}", f"{p.mfu:.1%}", f"{p.memory_gib:.1f}", p.fits,
            f"{p.exposed_communication_s / p.step_time_s:.1%}", f"{p.bubble_s / p.step_time_s:.1%}",
            f"{p.tokens_per_s / best:.0%}",
        ]
        for p in plans
    ]  # fmt: skip
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in [header, *rows])
