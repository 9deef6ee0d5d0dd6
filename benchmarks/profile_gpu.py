"""On a machine with an NVIDIA GPU: the exporter's GPU metrics beside nvidia-smi's, what a scrape costs, and profiles of
our trainer and of a plain transformers loop. Traces go to the folder given; `trainwright profile TRACE` sums them up.

    python benchmarks/profile_gpu.py OUT
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
LOAD = """
import time
import torch

a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.time() + 14
while time.time() < end:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""
FOREIGN = """
import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=16,
                     num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=2048)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.randint(32000, (64, 2048))
for number, batch in enumerate(DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)):
    batch = batch.cuda(non_blocking=True)
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if number % 5 == 0:
        print("step", number, float(loss), flush=True)
"""


def metrics(out: Path) -> None:
    """NVML beside nvidia-smi, under load; 50 scrapes."""
    load = subprocess.Popen([sys.executable, "-c", LOAD])
    command = [sys.executable, "-m", "trainwright.exporters", "--address", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as exporter:
        assert exporter.stderr is not None
        address = exporter.stderr.readline().split()[0]
        time.sleep(8)
        spent, page = [], ""
        for _ in range(50):
            began = time.perf_counter()
            page = urllib.request.urlopen(address).read().decode()
            spent.append(time.perf_counter() - began)
        fields = "utilization.gpu,memory.used,temperature.gpu,power.draw,clocks.sm,enforced.power.limit"
        smi = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True
        )
        print("nvidia-smi", fields, "=", smi.stdout.strip())
        print("\n".join(line for line in page.splitlines() if line.startswith("trainwright_gpu")))
        print("\n".join(line for line in page.splitlines() if "collector" in line and not line.startswith("#")))
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{exporter.pid}/status").read_text())
        best, median, worst = (f"{1e3 * f(spent):.1f} ms" for f in (min, statistics.median, max))
        print(
            f"scrape: best {best}, median {median}, worst {worst}; memory {int(peak[1]) / 1024 if peak else 0:.0f} MB"
        )
        (out / "metrics.txt").write_text(page)
        exporter.terminate()
    load.wait()


def run(words: list[str], **more: str) -> None:
    print("$", " ".join(words)[:200], flush=True)
    began = time.perf_counter()
    done = subprocess.run(words, env={**ENVIRONMENT, **more}, capture_output=True, text=True)
    print(
        (done.stdout + done.stderr)[-1500:],
        f"\n-> {done.returncode} after {time.perf_counter() - began:.0f} s",
        flush=True,
    )


def profiles(out: Path) -> None:
    work = Path("/tmp/profile-gpu")
    shutil.rmtree(work, ignore_errors=True)
    own = work / "own"
    words = [sys.executable, "-m", "trainwright.train", "--model", "llama3.2-1b", "--data", "builtin:stdlib"]
    words += [
        "--steps",
        "20",
        "--sequence",
        "4096",
        "--batch",
        "8",
        "--micro-batch",
        "4",
        "--checkpoint-every",
        "never",
    ]
    run([*words, "--folder", str(own), "--profile", "steps=14..16"])
    keep(own, out, "own")
    script = work / "loop.py"
    script.write_text(FOREIGN)
    profiler = str(ROOT / "src/trainwright/train/profile.py")
    foreign = work / "foreign"
    foreign.mkdir()
    wanted = {"TRAINWRIGHT_RUN": str(foreign), "TRAINWRIGHT_PROFILE": "steps=8..10"}
    run([sys.executable, profiler, str(script)], **wanted)
    keep(foreign, out, "foreign")
    if shutil.which("nsys"):
        report = ["nsys", "profile", f"--output={work}/nsight", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"]
        run([*report, "--force-overwrite=true", sys.executable, str(script)])
        run(["nsys", "export", "--type=sqlite", f"--output={work}/nsight.sqlite", f"{work}/nsight.nsys-rep"])
        run(["gzip", f"{work}/nsight.sqlite"])
        path = work / "nsight.sqlite.gz"
        if path.exists() and path.stat().st_size < 15 << 20:
            shutil.copy(path, out / path.name)
    else:
        print("nsys is not installed here")


def keep(folder: Path, out: Path, name: str) -> None:
    for path in folder.glob("profile/*.json.gz"):
        print(name, path.name, f"{path.stat().st_size / 1e6:.1f} MB")
        if path.stat().st_size < 15 << 20:
            shutil.copy(path, out / f"{name}.json.gz")
    lines = folder / "metrics.jsonl"
    if lines.exists():
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        print(name, [round(row["step_s"], 4) for row in rows], rows[-1])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    metrics(target)
    profiles(target)
