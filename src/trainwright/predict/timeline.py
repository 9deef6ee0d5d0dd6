"""A picture of one step: the forwards and backwards of each pipeline stage over time, and the waits between them."""

from __future__ import annotations

from html import escape

from trainwright.predict.prediction import Prediction
from trainwright.predict.render import LABELS, seconds

WIDTH, LANE, LEFT, TOP = 960, 26, 90, 46
COLOURS = {
    "forward": "#4c78a8",
    "backward": "#72b7b2",
    "exposed": "#e45756",
    "optimizer": "#b279a2",
    "other": "#bab0ac",
}
LEGEND = {"exposed": "waiting for communication"}
DRAWN_MICROBATCHES = 32


def bars(p: Prediction) -> list[tuple[int, float, float, str]]:
    """(lane, start, end, kind) of a 1F1B schedule scaled to the predicted step."""
    stages, micro = p.stages, min(p.microbatches, DRAWN_MICROBATCHES)
    compute = sum(p.parts[n] for n in ("products", "attention", "elementwise", "head", "recompute", "imbalance"))
    exposed = p.exposed_communication_s / p.microbatches
    one = compute / p.microbatches
    ahead, back, gap = one / 3, one * 2 / 3, exposed
    drawn: list[tuple[int, float, float, str]] = []
    free = [0.0] * stages
    sent = [[0.0] * micro for _ in range(stages + 1)]
    returned = [[0.0] * micro for _ in range(stages + 1)]
    for kind, index, stage in order(stages, micro):
        ready = sent[stage][index] if kind == "forward" else returned[stage + 1][index]
        start = max(free[stage], ready)
        end = start + (ahead if kind == "forward" else back)
        drawn.append((stage, start, end, kind))
        if gap > 0:
            drawn.append((stage, end, end + gap / 2, "exposed"))
        free[stage] = end + gap / 2
        if kind == "forward":
            sent[stage + 1][index] = end
            if stage == stages - 1:
                returned[stages][index] = end
        else:
            returned[stage][index] = end
    last = max(free)
    drawn += [(s, last, last + p.parts["optimizer"] + p.parts["fixed"], "optimizer") for s in range(stages)]
    return drawn


def order(stages: int, micro: int) -> list[tuple[str, int, int]]:
    """Operations (kind, microbatch, stage) in dependency order: warm-up, one forward one backward, drain."""
    queues = []
    for stage in range(stages):
        warm = min(micro, stages - stage)
        ops = [("forward", i) for i in range(warm)]
        for i in range(micro):
            ops.append(("backward", i))
            if warm + i < micro:
                ops.append(("forward", warm + i))
        queues.append(ops)
    done: set[tuple[str, int, int]] = set()
    ordered: list[tuple[str, int, int]] = []
    while any(queues):
        for stage, ops in enumerate(queues):
            while ops and ready(ops[0], stage, stages, done):
                kind, index = ops.pop(0)
                done.add((kind, index, stage))
                ordered.append((kind, index, stage))
    return ordered


def ready(op: tuple[str, int], stage: int, stages: int, done: set[tuple[str, int, int]]) -> bool:
    kind, index = op
    if kind == "forward":
        return stage == 0 or ("forward", index, stage - 1) in done
    return ("forward", index, stage) in done and (stage == stages - 1 or ("backward", index, stage + 1) in done)


def svg(p: Prediction) -> str:
    """A self-contained picture: one lane per stage, time runs to the right."""
    drawn, stages = bars(p), p.stages
    end = max(b[2] for b in drawn)
    scale = (WIDTH - LEFT - 20) / end
    height = TOP + stages * LANE + 70
    shown = min(p.microbatches, DRAWN_MICROBATCHES)
    part = "" if shown == p.microbatches else f"; first {shown} of {p.microbatches} microbatches drawn"
    until = end if part else p.step_time_s  # the bars leave out small parts; the axis does not
    title = f"{p.model}, {p.plan}: {seconds(p.step_time_s)} per step{part}"
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f"<title>One step of {escape(p.model)}</title>",
        "<style>text{fill:#24292f}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>",
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    lines += [f'<text x="10" y="{TOP + s * LANE + 16}">stage {s + 1}</text>' for s in range(stages)]
    for lane, start, stop, kind in drawn:
        wide = max(0.4, (stop - start) * scale)
        lines.append(
            f'<rect x="{LEFT + start * scale:.1f}" y="{TOP + lane * LANE}" width="{wide:.1f}" height="{LANE - 5}" '
            f'fill="{COLOURS[kind]}"><title>{kind} {seconds(stop - start)}</title></rect>'
        )
    lines += legend(height)
    for at, anchor, moment in ((LEFT, "start", "0"), (WIDTH - 20, "end", seconds(until))):
        lines.append(f'<text x="{at}" y="{TOP - 6}" text-anchor="{anchor}" font-size="11">{moment}</text>')
    top = sorted(p.parts.items(), key=lambda kv: -kv[1])[:5]
    shares = ", ".join(f"{LABELS.get(n, n)} {v / p.step_time_s:.0%}" for n, v in top)
    lines += [f'<text x="10" y="{height - 14}">{escape(shares)}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def legend(height: int) -> list[str]:
    lines, x = [], LEFT
    for kind in ("forward", "backward", "exposed", "optimizer"):
        label = LEGEND.get(kind, kind)
        lines.append(f'<rect x="{x}" y="{height - 52}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 17}" y="{height - 42}">{label}</text>')
        x += 45 + 7 * len(label)
    return lines
