"""Kills ranks of short runs at random moments, over all families and plans, until a number of kills is reached: no
sample may be lost or seen twice, no checkpoint lost, and every run must end with the weights of an undisturbed one.

    PYTHONPATH=src python benchmarks/kills.py --jobs 12 --kills 1000 --log kills.jsonl

Seeds follow from the number of the run, so that any line of the log can be repeated. A log that exists is continued.
When the time is over no run is killed any more: those under way finish and are compared."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # before torch is imported
sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "train")]

from chaos import CASES, survive  # noqa: E402

GRACE = 45.0  # seconds for the runs under way when the time is over


@dataclass(frozen=True)
class Work:
    """What the processes share."""

    log: Path
    per_run: int
    wanted: int
    end: float  # by time.monotonic, which all processes of a machine share
    next_run: Synchronized[int]
    kills: Synchronized[int]
    progress: int  # a file descriptor
    only: str = ""  # a part of the names of the cases to run

    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def take(self) -> int | None:
        """The number of the next run, or None when there is nothing left to do."""
        if not self.goes_on() or self.kills.value >= self.wanted:
            return None
        with self.next_run.get_lock():
            while self.only not in str(CASES[self.next_run.value % len(CASES)]):
                self.next_run.value += 1
            self.next_run.value += 1
            return self.next_run.value - 1

    def keep(self, row: dict) -> None:
        """One line per run by one write at the end of the file, which is atomic."""
        with self.kills.get_lock():
            self.kills.value += len(row.get("deaths", ()))
        line = (json.dumps(row) + "\n").encode()
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, line)
        os.close(descriptor)
        outcome = "identical end" if row["ok"] else "FAILED"
        progress = f"{row['case']}: {len(row.get('deaths', ()))} kills, {outcome}, {row['seconds']} s\n"
        os.write(self.progress, progress.encode())


def one_run(number: int, work: Work) -> dict[str, object]:
    case, began = CASES[number % len(CASES)], time.monotonic()
    row: dict[str, object] = {"run": number, "case": str(case), "seed": 1000 + number}
    with tempfile.TemporaryDirectory(prefix="trainwright-kills-") as folder:
        try:
            deaths = survive(Path(folder), case, work.per_run, 3 * work.per_run, 1000 + number, work.goes_on)
            row |= {"ok": True, "deaths": deaths}
        except Exception:
            row |= {"ok": False, "error": traceback.format_exc()[-4000:]}
    return {**row, "seconds": round(time.monotonic() - began, 1)}


def run_until_done(work: Work) -> None:
    """One of the processes side by side; SIGTERM ends its ranks and removes its folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # the ranks' own lines; their errors are in the log
    while (number := work.take()) is not None:
        work.keep(one_run(number, work))


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


def table(rows: list[dict]) -> str:
    """CSV: runs and kills of each family and plan, by the moment of the kill."""
    moments = sorted({death.split("@")[0] for row in rows for death in row.get("deaths", ())})
    lines = [["case", "runs", "failed", "kills", *moments]]
    for case in sorted({row["case"] for row in rows}):
        own = [row for row in rows if row["case"] == case]
        deaths = Counter(death.split("@")[0] for row in own for death in row.get("deaths", ()))
        counts = [len(own), sum(not row["ok"] for row in own), deaths.total(), *(deaths[moment] for moment in moments)]
        lines.append([case, *map(str, counts)])
    return "".join(",".join(f'"{cell}"' if "," in cell else cell for cell in line) + "\n" for line in lines)


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--per-run", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--first", type=int, default=0, help="number of the first run: another one, other seeds")
    parser.add_argument("--only", default="", help="cases whose names contain this, such as `vit` or `pp=2`")
    parser.add_argument("--log", type=Path, default=Path("kills.jsonl"))
    parser.add_argument("--table", type=Path, help="write what the log holds as CSV, by family and moment")
    args = parser.parse_args()
    if not any(args.only in str(case) for case in CASES):
        parser.error(f"no case has {args.only!r} in its name: {', '.join(map(str, CASES))}")
    rows, end = read_log(args.log), time.monotonic() + 60 * args.minutes
    first = max([args.first, *(row["run"] + 1 for row in rows if row["run"] >= args.first)])
    shared = multiprocessing.Value("q", first), multiprocessing.Value("q", sum(len(r.get("deaths", ())) for r in rows))
    work = Work(args.log, args.per_run, args.kills, end, *shared, os.dup(2), args.only)
    processes = [multiprocessing.Process(target=run_until_done, args=(work,)) for _ in range(args.jobs)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.0, end + GRACE - time.monotonic()) if args.minutes < 1e6 else None)
        process.terminate()
        process.join()
    rows = read_log(args.log)
    print(summary(rows))
    if args.table:
        args.table.write_text(table(rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
