"""A picture of one step: the forwards and backwards of each pipeline stage over time, and the waits between them."""

from __future__ import annotations

from html import escape

from trainwright.predict.constants import constants
from trainwright.predict.prediction import Prediction
from trainwright.predict.render import LABELS, seconds
from trainwright.predict.step import step_time
from trainwright.train.parallel.pipeline_schedule import Action, StageTime, schedule

Bar = tuple[int, float, float, str]  # lane, start, end, kind
Done = tuple[str, int, int]  # kind, stage counted over all ranks, microbatch

WIDTH, LANE, LEFT, TOP = 960, 26, 90, 46
COLOURS = {
    "forward": "#4c78a8",
    "backward": "#72b7b2",
    "weights": "#eeca3b",
    "exposed": "#e45756",
    "optimizer": "#b279a2",
    "other": "#bab0ac",
}
LEGEND = {"exposed": "waiting for communication", "weights": "weight gradients"}
DRAWN_MICROBATCHES = 32


def bars(p: Prediction) -> list[Bar]:
    """The schedule of the job, with a mean stage of the predicted step."""
    micro, stages, chunks = drawn_microbatches(p), p.stages, drawn_chunks(p)
    compute = sum(p.parts[n] for n in ("products", "attention", "elementwise", "head", "recompute", "imbalance"))
    scale = compute / p.microbatches / chunks
    shares = shares_of(p)
    stage = StageTime(shares.forward * scale, shares.backward * scale, shares.weights * scale)
    gap = p.exposed_communication_s / p.microbatches / chunks / 2  # after a forward, and after a backward
    drawn = played(stages, chunks, micro, stage, p.setup is not None and p.setup.zero_bubble, gap)
    last = max(stop for _, _, stop, _ in drawn)
    return drawn + [(s, last, last + p.parts["optimizer"] + p.parts["fixed"], "optimizer") for s in range(stages)]


def drawn_chunks(p: Prediction) -> int:
    """Stages per rank; one in a picture of too few microbatches to interleave."""
    return p.setup.plan.virtual_stages if p.setup and p.microbatches >= p.stages else 1


def drawn_microbatches(p: Prediction) -> int:
    """As many as are readable; a multiple of the ranks where stages are interleaved."""
    most = min(p.microbatches, max(DRAWN_MICROBATCHES, p.stages))
    return most - most % p.stages if drawn_chunks(p) > 1 else most


def shares_of(p: Prediction) -> StageTime:
    """What the parts of a microbatch take of its time in a stage."""
    if p.setup is None or p.stages == 1:
        return StageTime(1 / 3, 2 / 3, 0.0)
    stage = step_time(p.setup, constants()).stage
    return StageTime(stage.forward / stage.total, stage.backward / stage.total, stage.weights / stage.total)


def played(
    ranks: int, chunks: int, microbatches: int, stage: StageTime, zero_bubble: bool, gap: float = 0.0
) -> list[Bar]:
    """Every rank does its actions in order, each as soon as what it needs has arrived."""
    queues = [schedule(rank, ranks, chunks, microbatches, zero_bubble) for rank in range(ranks)]
    length = {"forward": stage.forward, "backward": stage.backward, "weights": stage.weights}
    if not zero_bubble:
        length["backward"] += stage.weights
    free, ends = [0.0] * ranks, dict[Done, float]()
    drawn: list[Bar] = []
    while any(queues):
        for rank, actions in enumerate(queues):
            while actions and all(done in ends for done in needed(actions[0], rank, ranks, chunks)):
                action = actions.pop(0)
                start = max(free[rank], *(ends[done] for done in needed(action, rank, ranks, chunks)), 0.0)
                free[rank] = end = start + length[action.kind]
                ends[action.kind, action.chunk * ranks + rank, action.microbatch] = end
                drawn.append((rank, start, end, action.kind))
                if gap > 0 and action.kind != "weights":
                    free[rank] += gap
                    drawn.append((rank, end, free[rank], "exposed"))
    return drawn


def needed(action: Action, rank: int, ranks: int, chunks: int) -> tuple[Done, ...]:
    """What must have ended before: the stage before, or for a gradient the stage after; the last one's own forward."""
    stage = action.chunk * ranks + rank
    if action.kind == "forward":
        return (("forward", stage - 1, action.microbatch),) if stage else ()
    if action.kind == "weights":
        return (("backward", stage, action.microbatch),)
    last = stage == ranks * chunks - 1
    return (("forward", stage, action.microbatch) if last else ("backward", stage + 1, action.microbatch),)


def svg(p: Prediction) -> str:
    """A self-contained picture: one lane per stage, time runs to the right."""
    drawn, stages = bars(p), p.stages
    end = max(b[2] for b in drawn)
    scale = (WIDTH - LEFT - 20) / end
    height = TOP + stages * LANE + 70
    shown = drawn_microbatches(p)
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
    lines += legend(height, {kind for *_, kind in drawn})
    for at, anchor, moment in ((LEFT, "start", "0"), (WIDTH - 20, "end", seconds(until))):
        lines.append(f'<text x="{at}" y="{TOP - 6}" text-anchor="{anchor}" font-size="11">{moment}</text>')
    top = sorted(p.parts.items(), key=lambda kv: -kv[1])[:5]
    shares = ", ".join(f"{LABELS.get(n, n)} {v / p.step_time_s:.0%}" for n, v in top)
    lines += [f'<text x="10" y="{height - 14}">{escape(shares)}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def legend(height: int, kinds: set[str]) -> list[str]:
    lines, x = [], LEFT
    for kind in ("forward", "backward", "weights", "exposed", "optimizer"):
        if kind == "weights" and kind not in kinds:
            continue
        label = LEGEND.get(kind, kind)
        lines.append(f'<rect x="{x}" y="{height - 52}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 17}" y="{height - 42}">{label}</text>')
        x += 45 + 7 * len(label)
    return lines
