"""Other frameworks' recipes at their debug size, trained for real: two CPU processes through `trainwright submit`, then
further through `trainwright resume`. Prints seconds, losses and the step each went on from.

    python benchmarks/frameworks.py [--write] [RECIPE ...]

--write keeps the figures in benchmarks/data/frameworks.csv, which docs/frameworks.md shows. The packages are those of
judges/frameworks.txt, in an environment over .venv. Seconds are wall time on this machine, imports included.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/recipes")]

from framework_runs import frameworks_venv, resume, train  # noqa: E402

from trainwright.recipes.load import recipe  # noqa: E402
from trainwright.recipes.model import Foreign  # noqa: E402

KEPT = ROOT / "benchmarks/data/frameworks.csv"
FIRST, LAST = 30, 40
RECIPES = (
    "ddp-mnist", "fsdp2-llama3.2-1b", "accelerate-llama3.2-1b", "lightning-llama3.2-1b", "jax-bytes",
    "deepspeed-llama3.1-8b-zero1", "deepspeed-llama3.1-8b-zero2", "deepspeed-llama3.1-8b-zero3", "hf-esm2-150m-ddp",
    "trl-llama3.1-8b-sft", "trl-llama3.1-8b-lora", "trl-grpo-qwen2.5-0.5b", "hf-distillation", "nanovlm",
)  # fmt: skip


def measured(name: str, venv: str) -> dict[str, object]:
    """One recipe: trained to FIRST steps, resumed to LAST."""
    trainer = recipe(name).trainer
    assert isinstance(trainer, Foreign)
    assert trainer.known is not None
    first = train(f"{name}-debug", venv, "--steps", str(FIRST))
    further = resume(first, venv, "--steps", str(LAST))
    rows = [*first.rows, *further.rows]
    measure = "reward" if "reward" in rows[0] else "loss"  # GRPO's loss stays near zero by construction
    values = [row[measure] for row in rows]
    around = 10 if measure == "reward" else 1  # a reward is noise from step to step: the mean of ten
    begin, end = statistics.mean(values[:around]), statistics.mean(values[-around:])
    return {
        "framework": trainer.known.title, "version": trainer.known.version, "recipe": name, "steps": len(rows),
        "seconds": round(first.seconds, 1), "measure": measure, "first": round(begin, 3),
        "last": round(end, 3), "resumed_after": further.steps[0] - 1,
        "seconds_resumed": round(further.seconds, 1), "date": datetime.date.today().isoformat(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    venv = frameworks_venv()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRAINWRIGHT_HOME"] = home
        for name in given.recipes:
            rows.append(measured(name, venv))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if given.write:
        keep(rows)


def keep(rows: list[dict[str, object]]) -> None:
    """Write the figures; recipes that were not run keep theirs."""
    known: dict[str, dict[str, object]] = {}
    if KEPT.exists():
        with KEPT.open(encoding="utf-8") as file:
            known = {row["recipe"]: dict(row) for row in csv.DictReader(file)}
    known |= {str(row["recipe"]): row for row in rows}
    with KEPT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(known[name] for name in RECIPES if name in known)


if __name__ == "__main__":
    main()
