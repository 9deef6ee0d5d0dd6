"""GPU metrics on a machine that has one, beside nvidia-smi's; benchmarks/profile_gpu.py does the same under load."""

from __future__ import annotations

import subprocess

import pytest
from test_efa_exporter import parsed, sample

from trainwright.exporters.gpu import GpuCollector


def test_without_a_driver_there_is_nothing_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.exporters.gpu.LIBRARY", "libnvidia-ml-that-is-not-there.so.1")
    assert not GpuCollector().available()


@pytest.mark.gpu
def test_nvml_and_nvidia_smi_agree() -> None:
    collector = GpuCollector()
    if not collector.available():
        pytest.skip("no NVIDIA driver")
    fields = ["--query-gpu=index,memory.used,memory.total,temperature.gpu", "--format=csv,noheader,nounits"]
    lines = subprocess.run(["nvidia-smi", *fields], capture_output=True, text=True, check=True).stdout.splitlines()
    samples = parsed(collector.collect())
    assert sample(samples, "gpu_devices") == len(lines)
    for line in lines:
        gpu, used, size, celsius = (word.strip() for word in line.split(","))
        assert (sample(samples, "gpu_memory_size_bytes", gpu=gpu) or 0) == pytest.approx(int(size) * 2**20, rel=0.01)
        assert (sample(samples, "gpu_memory_used_bytes", gpu=gpu) or 0) == pytest.approx(int(used) * 2**20, abs=2**28)
        assert (sample(samples, "gpu_temperature_celsius", gpu=gpu) or 0) == pytest.approx(int(celsius), abs=5)
