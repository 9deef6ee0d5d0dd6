"""Recipes of other frameworks on one GPU, with the scripts that `trainwright submit` writes.

    python benchmarks/frameworks_gpu.py prepare FOLDER     here: run folders with script, configuration and programs
    python3 benchmarks/frameworks_gpu.py run FOLDER        on the GPU machine, which needs the framework alone

Runs of torchtitan: its debug size, the same job again, which must go on from its checkpoint, and the recipes of Llama
3.1 8B, in bf16 and in float8, with its real widths at a depth of four layers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

RUNS = "/tmp/frameworks"  # on the GPU machine
DEPTH = """\
import sys
from dataclasses import replace
from torchtitan.models import llama3
llama3.llama3_args["8B"] = replace(llama3.llama3_args["8B"], n_layers=4, vocab_size=2048)
import runpy
sys.argv = ["torchtitan.train", *sys.argv[1:]]
runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)
"""
JOBS = {
    "debug": {"recipe": "torchtitan-llama3.1-8b-debug", "precision": "bf16"},
    "again": {"recipe": "torchtitan-llama3.1-8b-debug", "precision": "bf16", "steps": 40},
    "shallow": {"recipe": "torchtitan-llama3.1-8b", "batch": {"sequences": 8, "micro_batch": 2}, "steps": 20,
                "optimizer": {"warmup": 2}, "checkpoint": {"steps": 20}, "data": "builtin:stdlib"},
    "float8": {"recipe": "torchtitan-llama3.1-8b-float8", "batch": {"sequences": 8, "micro_batch": 2}, "steps": 20,
               "optimizer": {"warmup": 2}, "checkpoint": {"steps": 20}, "data": "builtin:stdlib"},
}  # fmt: skip
LINE = re.compile(r"step:\s+(\d+).*?loss:\s+([\d.]+).*?memory:\s+([\d.]+)GiB.*?tps:\s+([\d,]+).*?mfu:\s+([\d.]+)%")


def prepare(folder: Path) -> None:
    """Write the run folders; `again` continues in the folder of `debug`."""
    import yaml

    from trainwright.jobs.resolve import resolve_job
    from trainwright.schedulers.launch import Place, launch_of
    from trainwright.schedulers.process import ProcessScheduler
    from trainwright.spec.load import load_text

    for name, stated in JOBS.items():
        spec = {"name": "gpu", "platform": "local", "queues": [{"name": "train", "nodes": 1, "cpus": 16}],
                "jobs": [{"name": "train", "nodes": 1, "processes": 1, **stated}]}  # fmt: skip
        job = resolve_job(load_text(yaml.safe_dump(spec), "spec.yaml"), "train", "process").require()
        run = "debug" if name == "again" else name
        launch = launch_of(job, Place(Path(RUNS) / run, "python3"))
        script = ProcessScheduler(python="python3").render(launch).text
        if name in ("shallow", "float8"):
            script = script.replace("-m torchtitan.train", f"{RUNS}/{run}/code/depth.py")
        (folder / name / "code").mkdir(parents=True)
        (folder / name / "job.sh").write_text(script)
        (folder / name / "code" / "depth.py").write_text(DEPTH)
        for path, text in launch.files:
            if name in ("shallow", "float8"):
                text = re.sub(r"(?m)^hf_assets_path = .*$", f'hf_assets_path = "{RUNS}/debug/sample/tokenizer"', text)
                place = f'dataset_path = "{RUNS}/debug/sample/c4_test"'
                text = text.replace('dataset = "c4_test"', f'dataset = "c4_test"\n{place}')
            (folder / name / "code" / Path(path).name).write_text(text)


def run(folder: Path) -> None:
    """Run each script and print its figures."""
    for name in JOBS:
        target = Path(RUNS) / ("debug" if name == "again" else name)
        subprocess.run(["mkdir", "-p", str(target)], check=True)
        subprocess.run(["cp", "-r", f"{folder}/{name}/.", str(target)], check=True)
        (target / "logs" / "rank-0.log").unlink(missing_ok=True)
        began = time.monotonic()
        done = subprocess.run(["timeout", "120", "bash", str(target / "job.sh")], capture_output=True, text=True)
        log = (target / "logs" / "rank-0.log").read_text(errors="replace") if (target / "logs").exists() else ""
        steps = [match.groups() for match in LINE.finditer(log)]
        facts = {"run": name, "status": done.returncode, "seconds": round(time.monotonic() - began, 1)}
        if steps:
            facts |= {"first": steps[0], "last": steps[-1], "steps": len(steps)}
        print(json.dumps(facts), flush=True)
        if done.returncode or not steps:
            print(log[-3000:] or done.stderr[-2000:], flush=True)


if __name__ == "__main__":
    {"prepare": prepare, "run": run}[sys.argv[1]](Path(sys.argv[2]))
