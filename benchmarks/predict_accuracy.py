"""How far the predictor is from published measurements: speed, memory, collectives, ranking and interval coverage, for
dense models and mixtures of experts, beside a naive baseline (one MFU per GPU and precision).

    python benchmarks/predict_accuracy.py              the shipped constants
    python benchmarks/predict_accuracy.py --leave-out  every source against a fit without it (NVIDIA's are one), and
                                                       five random parts against a fit to the rest; minutes
    python benchmarks/predict_accuracy.py --fit        print the constants that fit every row best
    python benchmarks/predict_accuracy.py --fit --write  and write them to constants.toml and evidence.toml
    python benchmarks/predict_accuracy.py --constants  print docs/predict/constants.md
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

import numpy as np
from predict_fit import (
    FREE,
    FREE_ATTENTION,
    FREE_EXPERTS,
    FREE_MEMORY,
    FREE_NEURON,
    NEAR_ROUNDS,
    Fit,
    Point,
    Vector,
    errors,
    fit,
    left_out,
    memory_errors,
    points,
    read,
    setups,
    split_experts,
    split_neuron,
    timed,
    weighed,
)

from trainwright.predict.constants import CONSTANTS_FILE, Constants, constants, table
from trainwright.predict.evidence import Kind, half_width, kind_of, outside
from trainwright.predict.memory import memory
from trainwright.predict.published.row_trainer import year_of
from trainwright.predict.published.rows import precision_of, published_flops_per_token, setup_of
from trainwright.predict.published.rows_collectives import answer_collective
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time

EVIDENCE_FILE = CONSTANTS_FILE.with_name("evidence.toml")
PARTS = 5
OURS = "trainwright"  # the source of rows that we measured ourselves


def summary(log: Vector) -> str:
    size = np.abs(np.expm1(log))
    return (
        f"n={len(size):4d}  mean {size.mean():6.1%}  median {np.median(size):6.1%}  "
        f"p90 {np.percentile(size, 90):6.1%}  bias {np.expm1(log.mean()):+6.1%}"
    )


def mfu_factor(s: Setup) -> tuple[tuple[str, str], float]:
    """(GPU and precision, FLOPs per token over peak) of one row; multiplied by tokens/s per GPU it is the MFU."""
    key = (s.cluster.device.name.split("-")[0], s.precision)
    return key, published_flops_per_token(s.shape, s.batch.sequence) / s.cluster.device.bf16


def naive(chosen: Sequence[Point], name: Callable[[Point], str]) -> Vector:
    """log error of the median MFU that other groups reach on the same GPU and precision (0.4 where there is none)."""
    facts = [(p, p.truth or 1.0, *mfu_factor(s)) for p, s in zip(chosen, setups(chosen, constants()), strict=True)]
    log = []
    for p, truth, key, per in facts:
        pool = [t * f for q, t, k, f in facts if k == key and name(q) != name(p)]
        log.append(math.log((float(np.median(pool)) if pool else 0.4) / per / truth))
    return np.array(log)


def spearman(a: Vector, b: Vector) -> float:
    def rank(v: Vector) -> Vector:
        return np.argsort(np.argsort(v)).astype(float)

    return float(np.corrcoef(rank(a), rank(b))[0, 1])


def sweeps(chosen: Sequence[Point], log: Vector) -> dict[str, float]:
    """Rank correlation within each sweep: one table, release, model, GPU and precision, five or more distinct settings
    that span more than 10 %. Runs of the same setting are one point."""
    tables: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for p, e in zip(chosen, log, strict=True):
        source = p.row.get("path_or_url", "").split(":")[0]
        key = f"{source} {year_of(p.row)} {p.row['model']} {p.row['gpu'][:9]} {precision_of(p.row['precision'])}"
        tables[key][round((p.truth or 1.0) * math.exp(e), 6)].append(p.truth or 1.0)
    correlations = {}
    for key, settings in tables.items():
        guess = np.array(list(settings))
        truth = np.array([np.mean(v) for v in settings.values()])
        if len(truth) >= 5 and truth.max() / truth.min() > 1.1:
            correlations[key] = spearman(truth, guess)
    return correlations


def by_group(chosen: Sequence[Point], log: Vector, name: Callable[[Point], str]) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for index, p in enumerate(chosen):
        groups[name(p)].append(index)
    floor = naive(chosen, name)
    for key, indices in sorted(groups.items(), key=lambda kv: -len(kv[1])):
        base = np.abs(np.expm1(floor[indices])).mean()
        print(f"  {key[:44]:44s} {summary(log[indices])}   naive mean {base:6.1%}")


def covered(
    chosen: Sequence[Point], log: Vector, seen: Callable[[Point], Collection[Kind]], new_source: bool
) -> Vector:
    """Whether each measurement lies in the 80 % interval around its prediction."""
    inside = []
    for p, s, e in zip(chosen, setups(chosen, constants()), log, strict=True):
        width = half_width(outside(s, step_time(s, constants()).total, seen(p), new_source))
        inside.append(abs(e) <= width)
    return np.array(inside, dtype=float)


def kinds(chosen: Sequence[Point]) -> set[Kind]:
    return {kind_of(s) for s in setups(chosen, constants())}


def part_errors(chosen: Sequence[Point], whole: Fit) -> Vector:
    """Each of five random parts against a fit to the other four: rows whose neighbours were seen."""
    speed = timed(chosen)
    part = np.random.default_rng(0).integers(0, PARTS, len(speed))
    log = np.zeros(len(speed))
    for number in range(PARTS):
        held = part == number
        seen = [p for p, out in zip(speed, held, strict=True) if not out] + [p for p in chosen if not p.truth]
        log[held] = errors(
            [p for p, out in zip(speed, held, strict=True) if out], fit(seen, NEAR_ROUNDS, whole).constants
        )
    return log


def report_speed(
    title: str,
    chosen: Sequence[Point],
    log: Vector,
    seen: Callable[[Point], Collection[Kind]],
    new_source: bool = False,
) -> None:
    """Dense rows by group, then mixtures of experts by source, then Neuron chips."""
    place = {id(p): e for p, e in zip(chosen, log, strict=True)}
    on_gpus, neuron = split_neuron(chosen, constants())
    dense, experts = split_experts(on_gpus, constants())
    tables = (("dense", dense), ("moe", experts), ("neuron", neuron))
    errors_of = {name: np.array([place[id(p)] for p in rows]) for name, rows in tables}
    print(title)
    by_group(dense, errors_of["dense"], lambda p: p.group)
    published = [i for i, p in enumerate(dense) if p.source != OURS]
    print(f"  {'dense, all but our own':44s} {summary(errors_of['dense'][published])}")
    eight = [
        i for i, s in enumerate(setups(dense, constants())) if (s.cluster.device.name, s.precision) == ("h100", "fp8")
    ]
    print(f"  {'dense, H100 with fp8':44s} {summary(errors_of['dense'][eight])}")
    if experts:
        by_group(experts, errors_of["moe"], lambda p: p.source)
        print(f"  {'mixture of experts, all':44s} {summary(errors_of['moe'])}")
    if neuron:
        print(f"  {'Neuron chips':44s} {summary(errors_of['neuron'])}")
    ranks = sweeps(dense, errors_of["dense"])
    print(f"  rank correlation within {len(ranks)} sweeps: mean {np.mean(list(ranks.values())):.3f}")
    for name, rows in tables:
        if rows:
            inside = covered(rows, errors_of[name], seen, new_source)
            groups = {p.group for p in rows}
            each = [inside[[p.group == group for p in rows]].mean() for group in groups]
            print(
                f"  the 80 % interval covers {inside.mean():.1%} of {name} rows, {np.mean(each):.1%} as the mean of "
                f"{len(groups)} sources"
            )


def collective_rows() -> list[dict[str, str]]:
    """Rows with a size. A figure printed with one digit (0.01 GB/s) is too coarse to compare with, and is left out."""
    rows = [r for r in read("published_collectives.csv") if r["bytes"] and "quality=C" not in r["notes"]]
    exact = [row for row in rows if len(row["busbw_gbps"].replace(".", "").strip("0")) > 1]
    return [row for row in exact if answer_collective(row)["covered"]]


def collective_errors() -> Vector:
    made = [(float(str(answer_collective(row)["busbw_gb_s"])), row) for row in collective_rows()]
    return np.array([math.log(rate / float(row["busbw_gbps"])) for rate, row in made])


def false_misfits(c: Constants) -> tuple[int, int]:
    """(rows that ran but are predicted over the GPU's memory, rows covered)"""
    jobs = [s for s in (setup_of(row, c).setup for row in read("published_training.csv")) if s is not None]
    return sum(memory(s, c).total > s.cluster.device.memory for s in jobs), len(jobs)


def report_rest(memory_log: Vector) -> None:
    print(f"memory\n  {'all':44s} {summary(memory_log)}")
    over, every = false_misfits(constants())
    print(f"  predicted not to fit, but ran: {over} of {every} ({over / every:.1%})")
    print(f"collectives\n  {'all':44s} {summary(collective_errors())}")


def constants_page() -> str:
    """docs/predict/constants.md: every constant, its unit, its evidence and its reason."""
    lines = [
        "# The constants",
        "",
        "Generated from `src/trainwright/predict/constants.toml` by `benchmarks/predict_accuracy.py --constants`.",
        "Evidence: `operators` is our own H200 grid (`benchmarks/data/h200_operators.csv`); `training` and",
        "`collectives` are the published tables (`training` with our own runs), `paper` the publication or data sheet",
        "named.",
        "",
        "| constant | value | unit | evidence | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, entry in table().items():
        if "value" in entry:
            lines.append(f"| {name} | {entry['value']:g} | {entry['unit']} | {entry['from']} | {entry['why']} |")
    lines += ["", "## Bytes moved per element (forward, backward), by fusion", ""]
    ops = [key for key in table()["traffic"]["eager"] if key != "from"]
    lines += ["| fusion | " + " | ".join(ops) + " |", "| --- |" + " --- |" * len(ops)]
    for level, entry in table()["traffic"].items():
        lines.append(f"| {level} | " + " | ".join(f"{entry[op][0]:g}, {entry[op][1]:g}" for op in ops) + " |")
    lines += ["", "## Attention kernels: part of peak on long causal sequences (forward, backward)", ""]
    lines += ["| kernel | generation | rate | evidence |", "| --- | --- | --- | --- |"]
    for kernel, by_arch in table()["attention"].items():
        for arch, entry in by_arch.items():
            lines.append(f"| {kernel} | {arch} | {entry['rate'][0]:g}, {entry['rate'][1]:g} | {entry['from']} |")
    return "\n".join(lines) + "\n"


def report_fit(chosen: Sequence[Point], write: bool) -> None:
    best = fit(chosen).constants
    for name in (*FREE, *FREE_EXPERTS, *FREE_NEURON, *FREE_MEMORY):
        print(f"{name:32s} {getattr(best, name):.3g}   shipped {getattr(constants(), name):.3g}")
    for key in FREE_ATTENTION:
        rates = tuple(round(rate, 3) for rate in best.attention[key])
        print(f"{'.'.join(key):32s} {rates}   shipped {constants().attention[key]}")
    if write:
        write_fit(best)
        rows = sorted(kinds(timed(chosen)))
        lines = [
            "# Trainer, accelerator and precision of the rows behind constants.toml; --fit --write renews this file."
        ]
        names = sorted({p.source for p in timed(chosen)})
        lines += ["sources = [", *(f'  "{name}",' for name in names), "]"]
        lines += ["kinds = [", *(f'  ["{a}", "{b}", "{c}"],' for a, b, c in rows), "]"]
        EVIDENCE_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_fit(best: Constants) -> None:
    """Replaces the fitted values in constants.toml and leaves its text alone."""
    text = CONSTANTS_FILE.read_text(encoding="utf-8")
    for name in (*FREE, *FREE_EXPERTS, *FREE_NEURON, *FREE_MEMORY):
        text = re.sub(rf"(\[{name}\]\nvalue = )\S+", rf"\g<1>{float(f'{getattr(best, name):.3g}')}", text)
    for kernel, arch in FREE_ATTENTION:
        forward, backward = best.attention[kernel, arch]
        text = re.sub(rf"(\[attention\.{kernel}\.{arch}\]\nrate = ).*", rf"\g<1>[{forward:.3f}, {backward:.3f}]", text)
    CONSTANTS_FILE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--leave-out", "--fit", "--write", "--constants"):
        parser.add_argument(flag, action="store_true")
    flags = parser.parse_args()
    if flags.constants:
        print(constants_page(), end="")
        return
    chosen = points()
    speed = timed(chosen)
    if flags.fit:
        report_fit(chosen, flags.write)
    elif flags.leave_out:
        whole = fit(chosen)
        log, memory_log, _ = left_out(chosen, whole)
        others = {g: kinds([p for p in speed if p.group != g]) for g in {p.group for p in speed}}
        report_speed("each source against a fit without it", speed, log, lambda p: others[p.group], True)
        every = kinds(speed)
        report_speed("each fifth against a fit to the rest", speed, part_errors(chosen, whole), lambda _: every)
        report_rest(memory_log)
    else:
        every = kinds(speed)
        report_speed("shipped constants", speed, errors(speed, constants()), lambda _: every)
        report_rest(memory_errors(weighed(chosen), constants()))


if __name__ == "__main__":
    main()
