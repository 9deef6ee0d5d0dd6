"""How fast `trainwright check` is, as ratios against named peers in the same run: ParallelCluster's own schema load
on the same cluster files, and cfn-lint on the same templates; also start-up time and ten thousand files at once."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "src/trainwright/check/examples"
STACKS = sorted((ROOT / "src/trainwright/stacks/templates").glob("*.yaml"))
CLUSTERS = sorted(EXAMPLES.glob("*/good.parallelcluster*.yaml"))
SPEC = ROOT / "examples/p5-reservation.yaml"
PCLUSTER_PYTHON = ROOT / ".venvs/pcluster/bin/python"
# An installed package has its bytecode: without this, every start would compile the sources of a checkout again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

# Runs in ParallelCluster's own virtual environment. Only the schema load is timed: its validators come on top of it and
# mostly wait for AWS, so the ratio below is a lower bound.
PCLUSTER_TIMER = """
import json, statistics, sys, time, warnings
warnings.filterwarnings("ignore")
import yaml
from pcluster.schemas.cluster_schema import ClusterSchema
texts = [open(path).read() for path in sys.argv[1:]]
def once():
    for text in texts:
        ClusterSchema(cluster_name="bench").load(yaml.safe_load(text))
once()
times = []
for _ in range(3):
    start = time.perf_counter(); once(); times.append(time.perf_counter() - start)
print(json.dumps(statistics.median(times)))
"""


def median_seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """The median time of warm runs."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def check_seconds(paths: list[Path]) -> float:
    from trainwright.check.engine import check

    return median_seconds(lambda: [check([str(path)]) for path in paths])


def pcluster_seconds(paths: list[Path]) -> float | None:
    if not PCLUSTER_PYTHON.exists():
        return None
    environment = {
        "AWS_DEFAULT_REGION": "us-east-2",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nobody answers there: a look-up of a reservation fails at once
        "AWS_MAX_ATTEMPTS": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [str(PCLUSTER_PYTHON), "-c", PCLUSTER_TIMER, *map(str, paths)], capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        sys.exit(f"the peer failed: {done.stderr[-400:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def cfn_lint_seconds(paths: list[Path]) -> float:
    from cfnlint import ManualArgs, api

    configuration = ManualArgs(regions=["us-east-1"])
    return median_seconds(lambda: [api.lint_file(path, config=configuration) for path in paths], 3)


class Duration(NamedTuple):
    """Seconds on the clock, and of the CPUs: where other work fills them only the second can be compared."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s CPU)"


def timed(command: list[str], folder: str) -> Duration:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder, check=False, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Duration(time.perf_counter() - start, cpu)


def start_up(*words: str) -> Duration:
    """Process start to exit of one command: medians of warm runs."""
    command = [str(Path(sys.executable).with_name("trainwright")), *words]
    timed(command, str(ROOT))
    runs = [timed(command, str(ROOT)) for _ in range(7)]
    return Duration(statistics.median(run.wall for run in runs), statistics.median(run.cpu for run in runs))


def many_files(count: int) -> tuple[Duration, Duration, float]:
    """Times without and with a filled cache, and MiB of the largest process, for one call over so many files. The
    files are the examples of the rules, each copy with a line of its own, a hundred to a directory."""
    sources = sorted(p for p in EXAMPLES.glob("*/*") if p.is_file() and p.suffix not in (".expect", ".pyc"))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            source = sources[number % len(sources)]
            place = Path(folder) / "files" / f"{number // 100:03}"
            place.mkdir(parents=True, exist_ok=True)
            ending = "" if source.suffix in (".json", ".conf") else f"\n# copy {number}\n"
            target = place / (source.name if source.suffix == ".conf" else f"{number:05}{source.suffix}")
            target.write_text(source.read_text(encoding="utf-8") + ending, encoding="utf-8")
        command = [sys.executable, "-m", "trainwright", "check", f"{folder}/files", "--format", "json"]
        # the second run fills the cache
        times = [timed([*command, *more], folder) for more in (["--no-cache"], [], [])]
    return times[0], times[2], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    rows: list[tuple[str, str, str]] = []
    rows.append(("trainwright --help", str(start_up("--help")), "< 0.2 s"))
    rows.append(("trainwright check, one file", str(start_up("check", str(CLUSTERS[0]))), "< 0.4 s"))
    rows.append(("trainwright check, one spec of ours", str(start_up("check", str(SPEC))), "< 0.4 s"))
    cold, warm, mib = many_files(10_000)
    rows.append(("10,000 files in one call", f"{cold}, {mib:.0f} MiB", "< 10 s, < 150 MiB"))
    rows.append(("10,000 unchanged files, from the cache", str(warm), "< 1 s"))
    ours, peer = check_seconds(CLUSTERS), pcluster_seconds(CLUSTERS)
    ratio = f"{peer / ours:.0f}x faster" if peer is not None else "peer not installed (.venvs/pcluster)"
    rows.append((f"pcluster schema load alone, {len(CLUSTERS)} files", ratio, ">= 10x with its validators"))
    if STACKS:
        ratio = f"{cfn_lint_seconds(STACKS) / check_seconds(STACKS):.0f}x faster"
        rows.append((f"cfn-lint, {len(STACKS)} templates", ratio, ">= 3x"))
    for what, measured, goal in rows:
        print(f"{what:44}{measured:32}{goal}")


if __name__ == "__main__":
    main()
