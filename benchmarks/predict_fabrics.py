"""Fits how collectives behave on EFA (fabrics.toml) to the published ones, and says how well unseen rows are predicted.

python benchmarks/predict_fabrics.py           each fifth of the rows against a fit to the rest
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
# (prior, one sigma in log space), the same for every generation of EFA; microseconds, but for the exponent.
FREE = {
    "start": (60.0, 0.7), "start_per_doubling": (30.0, 0.5), "hop": (9.0, 0.4), "pipeline": (40.0, 0.8),
    "pipeline_growth": (0.8, 0.15), "alltoall_pipeline": (20.0, 0.7),
}  # fmt: skip
FABRICS = ("efa", "efa-1", "efa-3")
PARTS, ROUNDS = 5, 8
Row = dict[str, str]


def values(x: Vector) -> dict[str, dict[str, float]]:
    moved = x.reshape(len(FABRICS), len(FREE))
    return {
        kind: {name: prior * math.exp(v) for (name, (prior, _)), v in zip(FREE.items(), line, strict=True)}
        for kind, line in zip(FABRICS, moved, strict=True)
    }


def residuals(rows: list[Row], x: Vector) -> Vector:
    """log(predicted / measured) of each row, with EFA as x says."""
    table = hardware._fabrics()
    for kind, new in values(x).items():
        table[kind].update(new)
    return np.array(
        [math.log(float(str(answer_collective(row)["busbw_gb_s"])) / float(row["busbw_gbps"])) for row in rows]
    )


def fit(rows: list[Row]) -> Stage:
    sigma = np.array([one for _, one in FREE.values()] * len(FABRICS))
    return least_squares(lambda x: residuals(rows, x), sigma, np.ones(len(rows)), ROUNDS)


def write(x: Vector) -> None:
    text = FABRICS_FILE.read_text(encoding="utf-8")
    for kind, new in values(x).items():
        head, section = text.split(f"[{kind}]", 1)
        for name, value in new.items():
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
    print(f"fit to all rows                       {summary(residuals(rows, best.x))}")
    for kind, new in values(best.x).items():
        print(kind, {name: float(f"{value:.3g}") for name, value in new.items()})
    if parser.parse_args().write:
        write(best.x)


if __name__ == "__main__":
    main()
