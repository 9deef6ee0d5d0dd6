"""Fits how collectives behave on EFA and NVLink (fabrics.toml) to the published ones, and says how well unseen rows are
predicted.

python benchmarks/predict_fabrics.py           each fifth, and each row, against a fit to the rest
python benchmarks/predict_fabrics.py --write   and write the fit to all rows to fabrics.toml
"""

from __future__ import annotations

import argparse
import math
import re

import numpy as np
from predict_accuracy import collective_rows, summary
from predict_fit import Stage, Vector, least_squares

from trainwright.predict import hardware
from trainwright.predict.published.rows_collectives import answer_collective

FABRICS_FILE = hardware.HERE / "fabrics.toml"
# (prior, one sigma in log space), the same for every generation; microseconds, but for exponents and efficiencies.
EFA = {
    "start": (60.0, 0.7), "start_per_doubling": (30.0, 0.5), "hop": (9.0, 0.4), "pipeline": (40.0, 0.8),
    "pipeline_growth": (0.8, 0.15), "ring_efficiency": (0.97, 0.05), "reduce_efficiency": (0.97, 0.05),
    "alltoall_pipeline": (20.0, 0.7), "alltoall_efficiency": (0.97, 0.05),
}  # fmt: skip
NVLINK = {
    "start": (15.0, 0.4), "hop": (1.0, 0.4), "pipeline": (10.0, 0.6), "ring_efficiency": (0.8, 0.05),
    "reduce_efficiency": (0.95, 0.15),
}  # fmt: skip
FREE = [
    (kind, name, prior, sigma)
    for kinds, free in ((("efa", "efa-1", "efa-3"), EFA), (("nvlink", "nvlink-5", "nvlink-plain"), NVLINK))
    for kind in kinds
    for name, (prior, sigma) in free.items()
]
SIGMA = np.array([sigma for *_, sigma in FREE])
PARTS, ROUNDS = 5, 12
SCALE = 0.03  # sweeps of one machine scatter by 3 %; what differs more is another library or another day
Row = dict[str, str]


def values(x: Vector) -> dict[str, dict[str, float]]:
    new: dict[str, dict[str, float]] = {}
    for (kind, name, prior, _), v in zip(FREE, x, strict=True):
        new.setdefault(kind, {})[name] = prior * math.exp(v)
    return new


def residuals(rows: list[Row], x: Vector) -> Vector:
    """log(predicted / measured) of each row, with links as x says."""
    table = hardware._fabrics()
    for kind, new in values(x).items():
        table[kind].update(new)
    return np.array(
        [math.log(float(str(answer_collective(row)["busbw_gb_s"])) / float(row["busbw_gbps"])) for row in rows]
    )


def fit(rows: list[Row], near: Stage | None = None) -> Stage:
    rounds = ROUNDS if near is None else 2
    return least_squares(lambda x: residuals(rows, x), SIGMA, np.ones(len(rows)), rounds, near, SCALE)


def each_left_out(rows: list[Row], whole: Stage) -> Vector:
    """The residual of each row by a fit to all others, which starts from the fit to all and keeps its slopes."""
    log = np.zeros(len(rows))
    for number, row in enumerate(rows):
        others = np.arange(len(rows)) != number
        near = Stage(whole.x, whole.slope[others])
        log[number] = residuals([row], fit([r for r, keep in zip(rows, others, strict=True) if keep], near).x)[0]
    return log


def write(best: Stage) -> None:
    """Write what the rows inform; a constant that moves none of them stays as it is."""
    informed = np.abs(best.slope).max(axis=0) > 1e-6
    known = {(kind, name) for (kind, name, *_), yes in zip(FREE, informed, strict=True) if yes}
    text = FABRICS_FILE.read_text(encoding="utf-8")
    for kind, new in values(best.x).items():
        head, section = text.split(f"[{kind}]", 1)
        for name, value in new.items():
            if (kind, name) in known:
                section = re.sub(rf"^({name} = )[\d.]+", rf"\g<1>{value:.3g}", section, count=1, flags=re.MULTILINE)
        text = head + f"[{kind}]" + section
    FABRICS_FILE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    rows = collective_rows()
    part = np.random.default_rng(0).integers(0, PARTS, len(rows))
    log = np.zeros(len(rows))
    for number in range(PARTS):
        best = fit([row for row, p in zip(rows, part, strict=True) if p != number])
        log[part == number] = residuals([row for row, p in zip(rows, part, strict=True) if p == number], best.x)
    print(f"each fifth against a fit to the rest  {summary(log)}")
    best = fit(rows)
    print(f"each row against a fit to the others  {summary(each_left_out(rows, best))}")
    print(f"fit to all rows                       {summary(residuals(rows, best.x))}")
    for kind, new in values(best.x).items():
        print(kind, {name: float(f"{value:.3g}") for name, value in new.items()})
    if parser.parse_args().write:
        write(best)


if __name__ == "__main__":
    main()
