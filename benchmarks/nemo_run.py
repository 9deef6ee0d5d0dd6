"""NeMo-Run's own Slurm executor and our recipes of NeMo 2: a dry run of each must ask Slurm for the nodes and ranks of
our job, and run the same command.

    python benchmarks/nemo_run.py

Nothing is submitted. NeMo-Run lives in an environment of its own over .venv (judges/nemo-run.txt, about 400 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/recipes")]
FOLDER = Path("/fsx/runs/r-1")

# Runs inside NeMo-Run's environment: one dry run per line of standard input.
DRY_RUN = """
import json, sys
import nemo_run as run
for line in sys.stdin.readlines():  # all of it, before a child reads from it too
    job = json.loads(line)
    executor = run.SlurmExecutor(
        account="a", partition="p", nodes=job["nodes"], ntasks_per_node=job["processes"],
        gpus_per_node=job["processes"], container_image=job["image"], env_vars=job["env"],
        packager=run.Packager(), tunnel=run.LocalTunnel(job_dir=job["folder"]),
    )
    script = run.Script(path=job["command"][1], args=job["command"][2:], entrypoint=job["command"][0])
    print("@@ " + job["name"], flush=True)
    with run.Experiment("dry", executor=executor) as experiment:
        experiment.add(script, executor=executor, name="dry")
        experiment.dryrun()
    sys.stdout.flush()
"""


def question(name: str, folder: str) -> dict[str, Any]:
    """What our job runs, and where."""
    from test_frameworks import written_for

    from resolving import loaded
    from trainwright.jobs.frameworks import framework_launch
    from trainwright.jobs.resolve import resolve_job

    job = resolve_job(loaded(written_for(name)), "j").require()
    launch = framework_launch(job, FOLDER, FOLDER / "code")
    return {
        "name": name, "nodes": job.placement.nodes, "processes": job.placement.processes,
        "image": job.runtime.container, "env": {line.name: line.value for line in launch.environment},
        "command": launch.command, "folder": folder,
    }  # fmt: skip


def accepted(asked: dict[str, Any], script: str) -> bool:
    """Whether the batch script of NeMo-Run says the same as our job."""
    wanted = [f"--nodes={asked['nodes']}", f"--ntasks-per-node={asked['processes']}", *asked["command"]]
    return all(word in script for word in (*wanted, *asked["env"], asked["image"]))


def main() -> int:
    from judges.layered import layered
    from trainwright.recipes.load import foreign_names, recipe
    from trainwright.recipes.model import Foreign

    trainers = {name: recipe(name).trainer for name in foreign_names()}
    names = [name for name, one in trainers.items() if isinstance(one, Foreign) and one.framework == "nemo2"]
    with tempfile.TemporaryDirectory() as folder:
        asked = [question(name, folder) for name in names]
        done = subprocess.run(
            [str(layered("nemo-run") / "bin/python"), "-c", DRY_RUN], text=True, capture_output=True, cwd=folder,
            input="".join(json.dumps(one) + "\n" for one in asked),
            env={**os.environ, "NEMORUN_HOME": folder, "COLUMNS": "1000", "PYTHONPATH": ""},
        )  # fmt: skip
    scripts = dict(zip(names, done.stdout.split("@@ ")[1:], strict=False))
    for one in asked:
        good = accepted(one, scripts.get(one["name"], ""))
        print(f"{one['name']:40} {one['nodes']:3} nodes  {'accepted' if good else 'REFUSED ' + done.stderr[-500:]}")
    return 0 if all(accepted(one, scripts.get(one["name"], "")) for one in asked) else 1


if __name__ == "__main__":
    sys.exit(main())
