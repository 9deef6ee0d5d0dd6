"""The exporter as a process: what it serves, to whom, at what cost; and each collector on the output of its source."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_files import write_node
from test_efa_exporter import parsed, sample

import trainwright.exporters
from trainwright.exporters import slurm
from trainwright.exporters.files import Tree
from trainwright.exporters.filesystems import FilesystemCollector, Mount
from trainwright.exporters.kernel import KernelLogCollector
from trainwright.exporters.lustre import LustreCollector
from trainwright.exporters.metric import MetricSet, gauge
from trainwright.exporters.neuron import NeuronCollector
from trainwright.exporters.server import Exporter
from trainwright.exporters.trainer import TrainerCollector

START = [sys.executable, "-m", "trainwright.exporters"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs/first-20261115"
    folder.mkdir(parents=True)
    lines = [{"step": n, "loss": 3.5 - n / 10, "tokens_per_s": 900.0, "time": time.time()} for n in range(1, 300)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 300, "lo')
    (folder / "events.jsonl").write_text('{"time": 1790000000.5, "event": "checkpoint", "step": 200}\n')
    prediction = {"tokens_per_s": 1000.0, "low": 110.0, "gpus": 8, "cost": {"usd_hour": 110.08}}
    (folder / "prediction.json").write_text(json.dumps(prediction))
    (folder / "run.json").write_text('{"job_id": "42"}')
    return tmp_path / "runs"


@pytest.fixture
def served(tmp_path: Path, runs: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A p5 node's exporter on a free port of the loopback address."""
    root = write_node("p5.48xlarge", tmp_path)
    words = ["--address", "127.0.0.1", "--port", "0", "--root", str(root), "--runs", str(runs), "--every", "0.2"]
    with subprocess.Popen([*START, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        yield line.split()[0], process
        process.terminate()
        assert process.wait(10) == 0


def test_the_exporter_serves_a_large_node_quickly_in_little_memory(
    served: tuple[str, subprocess.Popen[str]],
) -> None:
    address, process = served
    before = cpu_seconds(process.pid)
    for _ in range(10):
        with urllib.request.urlopen(address) as answer:
            page = answer.read().decode()
    # Its own time: on a busy machine it waits for a processor as well.
    assert (cpu_seconds(process.pid) - before) / 10 < 0.05
    assert "trainwright_exporter_scrape_seconds 0." in page
    assert page.count("\ntrainwright_efa_tx_bytes_total{") == 32
    assert 'trainwright_run_loss{run="first-20261115",slurm_job="42"}' in page
    assert 'trainwright_filesystem_responding{mount="/fsx",type="lustre"} 0' in page  # mounted in the recording only
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert memory
    assert int(memory[1]) < 32_000  # NVML adds about ten MB
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address.replace("metrics", "etc/passwd"))


def test_clients_that_say_nothing_do_not_stop_it(served: tuple[str, subprocess.Popen[str]]) -> None:
    port = int(address_port(served[0]))
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(7)]
    with urllib.request.urlopen(served[0], timeout=5) as answer:
        assert answer.status == 200
    silent += [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for connection in silent:
        connection.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def address_port(address: str) -> str:
    return address.split(":")[2].split("/")[0]


@pytest.mark.parametrize("address", ["0.0.0.0", "8.8.8.8", "::", "head"])
def test_only_private_addresses_are_served(address: str) -> None:
    done = subprocess.run([*START, "--address", address], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "address" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_code_parses_with_the_python_of_amazon_linux() -> None:
    folder = Path(trainwright.exporters.__file__).parent
    for path in [*folder.glob("*.py"), *(folder.parent / "health").glob("*.py")]:
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_a_collector_that_fails_costs_its_own_metrics_only(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken:
        name = "broken"

        def available(self) -> bool:
            return True

        def collect(self) -> MetricSet:
            raise KeyError("anything")

    class Good(Broken):
        name = "good"

        def collect(self) -> MetricSet:
            metrics = MetricSet()
            metrics.gauge("something", "x").add(4)
            return metrics

    exporter = Exporter([Broken(), Good()], [])
    for _ in range(3):
        page = exporter.page().decode()
    assert 'collector_ok{collector="broken"} 0' in page
    assert 'collector_ok{collector="good"} 1' in page
    assert "trainwright_something 4" in page
    assert capfd.readouterr().err.count("collector broken failed") == 1


def test_a_mount_that_never_answers_does_not_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("a / ext4 rw 0 0\nb /dead nfs4 rw 0 0\nc /run/x tmpfs rw 0 0\n")
    release, ask = threading.Event(), Mount._ask

    def hang(mount: Mount) -> None:
        if mount.path.endswith("dead"):
            release.wait()
        ask(mount)

    monkeypatch.setattr(Mount, "_ask", hang)
    monkeypatch.setattr("trainwright.exporters.filesystems.SECONDS", 0.2)
    collector = FilesystemCollector(Tree(tmp_path))
    collector.collect()
    thread = collector.mounts["/dead"].thread
    samples = parsed(collector.collect())
    assert collector.mounts["/dead"].thread is thread  # not asked again
    release.set()
    assert sample(samples, "filesystem_responding", mount="/dead", type="nfs4") == 0
    assert sample(samples, "filesystem_responding", mount="/", type="ext4") == 1
    assert (sample(samples, "filesystem_size_bytes", mount="/", type="ext4") or 0) > 0
    assert len([1 for name, _ in samples if name == "filesystem_responding"]) == 2


def test_the_trainers_last_line_and_its_prediction(runs: Path) -> None:
    broken = runs / "broken"
    broken.mkdir()
    (broken / "metrics.jsonl").write_bytes(b"\x00\xff[1, 2]\n3\n")
    old = runs / "old"
    old.mkdir()
    (old / "metrics.jsonl").write_text('{"step": 7}\n')
    os.utime(old / "metrics.jsonl", (1, 1))
    collector = TrainerCollector([str(runs), "/nowhere"])
    collector.collect()
    samples = parsed(collector.collect())
    assert list(collector.over) == [str(old / "metrics.jsonl")]
    assert not any("old" in str(labels) for _, labels in samples)
    labels = {"run": "first-20261115", "slurm_job": "42"}
    facts = {name: sample(samples, f"run_{name}", **labels) for name in ("step", "active", "usd_per_hour")}
    assert facts == {"step": 299, "active": 1, "usd_per_hour": 110.08}
    assert sample(samples, "run_predicted_tokens_per_s_low", **labels) == 880
    assert sample(samples, "run_last_checkpoint_timestamp_seconds", **labels) == 1790000000.5
    assert not any("broken" in str(labels) for _, labels in samples)


def test_slurm_nodes_and_jobs() -> None:
    metrics = MetricSet()
    slurm._nodes(
        metrics,
        "a-1|train|mixed|48/144/0/192|none\na-2|train|drained*|0/0/192/192|bad | card\nb-1|burst|idle~|0/4/0/4|\n",
    )
    slurm._jobs(
        metrics,
        "7|train|RUNNING|ann|2|1000|1100|None|a-[1-2]|pre|train\n8_1|train|PENDING|bob|1|1200|N/A|Resources||x\n"
        "8_2|train|PENDING|bob|1|1150|N/A|Dependency||x\n",
        2000.0,
    )
    samples = parsed(metrics)
    assert sample(samples, "slurm_nodes", partition="train", state="mixed") == 1
    assert sample(samples, "slurm_nodes", partition="burst", state="powered_down") == 1
    bad = {"node": "a-2", "partition": "train", "state": "not_responding", "reason": "bad | card"}
    assert sample(samples, "slurm_node_unusable", **bad) == 1
    assert sample(samples, "slurm_cpus", partition="train", use="idle") == 144
    running = {"slurm_job": "7", "partition": "train", "user": "ann", "job_name": "pre|train", "nodes": "2"}
    assert sample(samples, "slurm_job_running_seconds", **running) == 900
    assert sample(samples, "slurm_job_node", slurm_job="7", node="a-2") == 1
    assert sample(samples, "slurm_oldest_pending_seconds", partition="train") == 800


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gpu:8", 8), ("gpu:h100:8(S:0-1)", 8), ("gpu:h100:4(IDX:0-3),gpu:a10g:2(IDX:1)", 6), ("(null)", 0), ("fpga:2", 0),
     ("gpu:rtx-4090.x:0(IDX:N/A)", 0)],
)  # fmt: skip
def test_gpus_of_slurm(gres: str, count: int) -> None:
    assert slurm.gpu_count(gres) == count


@pytest.mark.parametrize(
    ("hosts", "names"),
    [("a", ["a"]), ("a-[1-3,7],b", ["a-1", "a-2", "a-3", "a-7", "b"]), ("n[08-10]x", ["n08x", "n09x", "n10x"]),
     ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]), ("", []), ("a[x-]", [])],
)  # fmt: skip
def test_host_lists(hosts: str, names: list[str]) -> None:
    assert slurm.expand(hosts) == names


def test_lustre_in_proc_and_in_sys(tmp_path: Path) -> None:
    files = {
        "proc/fs/lustre/llite/fsx-ffff8881/stats": "snapshot_time 1.5 secs\nread_bytes 3 samples [bytes] 1 9 4096\n"
        "write_bytes 2 samples [bytes] 4 8 12 99\nopen 17 samples [usec] 1 2 3 4\nnonsense\n",
        "sys/fs/lustre/osc/fsx-OST0000-osc-ffff8881/kbytestotal": "1000\n",
        "sys/fs/lustre/osc/fsx-OST0000-osc-ffff8881/kbytesavail": "10\n",
        "sys/kernel/debug/lustre/osc/fsx-OST0000-osc-ffff8881/import": "import:\n    name: x\n    state: DISCONN\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    collector = LustreCollector(Tree(tmp_path))
    assert collector.available()
    samples = parsed(collector.collect())
    mount = {"filesystem": "fsx", "mount": "fsx-ffff8881"}
    assert sample(samples, "lustre_read_bytes_total", **mount) == 4096
    assert sample(samples, "lustre_write_bytes_total", **mount) == 12
    assert sample(samples, "lustre_operations_total", operation="open", **mount) == 17
    target = {"filesystem": "fsx", "target": "fsx-OST0000"}
    assert sample(samples, "lustre_target_available_bytes", **target) == 10 * 1024
    assert sample(samples, "lustre_target_connected", **target) == 0


def test_neuron_monitor_is_followed(tmp_path: Path) -> None:
    core = {"neuroncore_counters": {"neuroncores_in_use": {"0": {"neuroncore_utilization": 87.5}, "1": None}}}
    stats = {"execution_stats": {"error_summary": {"generic": 2}}, "memory_used": []}
    device = {"neuron_device_index": 3, "mem_ecc_uncorrected": 1}
    report = {"neuron_runtime_data": [{"pid": 9, "report": {**core, **stats}}, None]}
    report["system_data"] = {"neuron_hw_counters": {"neuron_devices": [device]}}  # type: ignore[assignment]
    program = tmp_path / "neuron-monitor"
    program.write_text(f"#!/bin/sh\necho '{{broken'\necho '{json.dumps(report)}'\nexec sleep 60\n")
    program.chmod(0o755)
    collector = NeuronCollector(f"{tmp_path}:/usr/bin:/bin")
    assert collector.available()
    deadline = time.monotonic() + 20
    while not collector.report and time.monotonic() < deadline:
        samples = parsed(collector.collect())
        time.sleep(0.01)
    samples = parsed(collector.collect())
    assert sample(samples, "neuron_monitor_up") == 1
    assert sample(samples, "neuron_core_utilization_ratio", core="0", pid="9") == 0.875
    assert sample(samples, "neuron_execution_errors_total", kind="generic", pid="9") == 2
    assert sample(samples, "neuron_mem_ecc_uncorrected_total", device="3") == 1
    collector.close()


def test_xids_are_counted_with_what_they_ask_for(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    line = "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log.write_text(f"4,1,1,-;{line}\n")  # a file gives all in one read; the kernel one record per read
    collector = KernelLogCollector(str(log))
    assert collector.available()
    collector.collect()
    samples = parsed(collector.collect())
    assert sample(samples, "gpu_xid_total", bus="0000:53:00", xid="79", action="isolate") == 1


def test_the_name_of_a_metric_is_checked() -> None:
    with pytest.raises(ValueError, match="no name"):
        gauge("efa_Ünknown", "x")
