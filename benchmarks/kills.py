"""Kills ranks of short runs at random moments, over all families and plans, until a number of kills is reached: no
sample may be lost or seen twice, no checkpoint lost, and every run must end with the weights of an undisturbed one.

    PYTHONPATH=src python benchmarks/kills.py --kills 1000 --log kills.jsonl

Seeds follow from the round, so that any line of the log can be repeated. A log that exists is continued."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "train")]

from chaos import CASES, survive  # noqa: E402


def one_run(number: int, kills: int) -> dict[str, object]:
    case, began = CASES[number % len(CASES)], time.monotonic()
    row: dict[str, object] = {"run": number, "case": str(case), "seed": 1000 + number}
    with tempfile.TemporaryDirectory(prefix="trainwright-kills-") as folder:
        try:
            row["deaths"] = survive(Path(folder), case, kills, steps=3 * kills, seed=1000 + number)
            row["ok"] = True
        except Exception:
            row |= {"ok": False, "error": traceback.format_exc()[-2000:]}
    return {**row, "seconds": round(time.monotonic() - began, 1)}


def summary(rows: list[dict]) -> str:
    good = [row for row in rows if row["ok"]]
    kills = sum(len(row["deaths"]) for row in good)
    moments = Counter(death.split("@")[0] for row in good for death in row["deaths"])
    cases = Counter({row["case"]: 0 for row in rows})
    for row in good:
        cases[row["case"]] += len(row["deaths"])
    lines = [f"{kills} kills in {len(good)} runs with an identical end; {len(rows) - len(good)} runs failed"]
    lines += [f"  {count:5d}  {name}" for name, count in (*cases.most_common(), *moments.most_common())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--per-run", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--first", type=int, default=0, help="number of the first run: another one, other seeds")
    parser.add_argument("--log", type=Path, default=Path("kills.jsonl"))
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.log.read_text().splitlines()] if args.log.exists() else []
    end = time.monotonic() + 60 * args.minutes
    while sum(len(row.get("deaths", ())) for row in rows) < args.kills and time.monotonic() < end:
        rows.append(one_run(args.first + len(rows), args.per_run))
        with args.log.open("a") as log:
            log.write(json.dumps(rows[-1]) + "\n")
        print(f"{rows[-1]['case']}: {len(rows[-1].get('deaths', ()))} kills, {rows[-1]['ok']}", file=sys.stderr)
    print(summary(rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
