"""The words and small pictures that the live views share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainwright.report.watch.snapshot import RunView
from trainwright.runs.progress import clock, short

BLOCKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float | None], width: int) -> str:
    """A line of blocks, the newest value at the right; each column is the mean of its values."""
    known = [value for value in values if value is not None]
    if not known or width < 1:
        return ""
    size = min(width, len(known))
    cells = [known[at * len(known) // size : max(at * len(known) // size + 1, (at + 1) * len(known) // size)]
             for at in range(size)]  # fmt: skip
    means = [sum(cell) / len(cell) for cell in cells]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def run_line(run: RunView) -> str:
    """One run in one line."""
    return "  ".join([run.name, run.state, *(f"{name} {value}" for name, value in run_facts(run))])


def run_facts(run: RunView) -> Iterator[tuple[str, str]]:
    """Name and value of what is known."""
    if run.reason:
        yield "reason", run.reason
    if run.step:
        yield "step", f"{run.step:,}" + (f"/{run.steps:,}" if run.steps else "")
    if run.loss is not None:
        yield "loss", f"{run.loss:.4f}"
    elif not run.loss_finite:
        yield "loss", "not finite"
    if run.tokens_per_s:
        yield "tokens/s", short(run.tokens_per_s) + against_prediction(run)
    if run.mfu is not None:
        yield "MFU", f"{run.mfu:.1%}"
    if run.gpu_use is not None:
        yield "GPU use", f"{run.gpu_use:.0%}"
    if run.memory_gb is not None:
        yield "memory", f"{run.memory_gb:.1f} GB"
    if run.data_wait is not None:
        yield "data wait", f"{run.data_wait:.0%}"
    if run.network_mb_s is not None:
        yield "network", f"{run.network_mb_s:,.0f} MB/s"
    if run.goodput is not None:
        yield "goodput", f"{run.goodput:.0%}"
    if run.eta_s:
        yield "ETA", clock(run.eta_s)


def against_prediction(run: RunView) -> str:
    if not run.predicted or not run.tokens_per_s:
        return ""
    return f" ({short(run.predicted)} predicted, {run.tokens_per_s / run.predicted - 1:+.0%})"
