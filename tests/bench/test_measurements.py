"""Device, storage and checkpoint measurements: complete, plausible, written, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from trainwright.bench.__main__ import main as node_bench
from trainwright.bench.machine import instance_type
from trainwright.bench.results import parse_size
from trainwright.catalog.accelerators import accelerator_named
from trainwright.errors import UserError
from trainwright.report.curve import Axes, Curve, svg
from trainwright.report.device import limits
from trainwright.train.benchmarks import main as train_bench


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["trainwright", "bench", *words], capture_output=True, text=True)


def test_storage_measures_everything_and_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ("storage", str(folder), "--size", "8M", "--files", "5", "--clients", "2", "-o", str(tmp_path / "r.json"))
    done = run(*words, "--paid", "1")
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert {row["clients"] for row in result["rows"]} == {1, 2}
    assert len(result["rows"]) == 18
    assert all(row["per_s"] > 0 for row in result["rows"])
    assert list(folder.iterdir()) == []
    assert run(*words, "--paid", "100000000").returncode == 1


def test_storage_of_no_folder_is_a_mistake(tmp_path: Path) -> None:
    done = run("storage", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "no such folder" in done.stderr


def test_device_reports_matmul_and_memory(tmp_path: Path) -> None:
    done = run("device", "--shape", "64,64,64", "--seconds", "0.01", "--json", "-o", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["kind"] for row in result["rows"]} >= {"matmul bf16", "memory"}
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "device"


def test_the_data_sheet_is_found_by_torchs_name() -> None:
    names = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA B200": "b200", "NVIDIA L40S": "l40s"}
    names |= {"NVIDIA A100-SXM4-40GB": "a100-40", "NVIDIA A100-SXM4-80GB": "a100-80", "Tesla T4": "t4"}
    assert {name: accelerator_named(name).name for name in names} == names
    assert accelerator_named("AMD EPYC") is None
    sheet, assumed = limits("matmul bf16", accelerator_named("NVIDIA H200"))
    assert sheet == 989.0
    assert 0.6 * sheet < assumed < 794.5, "below the best that was ever measured: the rate that lasts"


def test_checkpoint_compares_three_methods(tmp_path: Path) -> None:
    done = run("checkpoint", "--sizes", "12", "--repeats", "1", "--folder", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["method"] for row in rows] == ["torch.save", "synchronous DCP", "trainwright"]
    assert all(row["load_s"] > 0 and row["bytes"] > 10e6 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_the_loader_is_plotted(tmp_path: Path) -> None:
    words = [
        "--count",
        "8",
        "--batch",
        "4",
        "--size",
        "16",
        "--threads",
        "1,2",
        "--decoders",
        "opencv",
        "--seconds",
        "0.05",
    ]
    done = run("loader", *words, "--plot", str(tmp_path / "l.svg"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "l.svg").read_text().count("<polyline") == 2


def test_an_ec2_machine_says_its_type(tmp_path: Path) -> None:
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    (tmp_path / "product_name").write_text("p5.48xlarge\n")
    assert instance_type(tmp_path) == "p5.48xlarge"
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    assert instance_type(tmp_path) == ""


def test_sizes_are_powers_of_two_as_in_nccl_tests() -> None:
    assert [parse_size(text) for text in ("8", "64K", "1M", "16GiB", "2g")] == [8, 65536, 2**20, 2**34, 2**31]
    for text in ("", "x", "-1M"):
        with pytest.raises(UserError):
            parse_size(text)


def test_a_plot_is_well_formed() -> None:
    from xml.etree import ElementTree

    text = svg(
        Axes("a < b", "x", "y", bytes=True),
        [Curve("m", [(2**20, 1.0), (2**30, 400.0)]), Curve("c", [(2**20, 750)], True)],
    )
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "a &lt; b" in text


@pytest.mark.parametrize(
    "words",
    [
        ("storage", "/proc"),
        ("storage", ".", "--files", "0"),
        ("storage", ".", "--clients", "0"),
        ("storage", ".", "--size", "nan"),
        ("storage", ".", "--paid", "-5"),
        ("device", "--shape", "1,2"),
        ("device", "--shape", "0,1,1"),
        ("device", "--seconds", "-1"),
    ],
)
def test_options_that_measure_nothing_are_wrong_usage(words: tuple[str, ...], capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = node_bench(list(words))
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert "error: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--sizes", "abc"), ("--repeats", "0"), ("--folder", "/proc/none")])
def test_checkpoint_options_that_measure_nothing_are_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises((UserError, SystemExit)) as caught:
        train_bench(["checkpoint", *words])
    assert getattr(caught.value, "status", None) == 2 or getattr(caught.value, "code", None) == 2


def test_an_earlier_result_is_not_judged_when_this_run_fails(tmp_path: Path) -> None:
    earlier = tmp_path / "result.json"
    earlier.write_text('{"kind": "collectives", "rows": [], "ranks": 2, "nodes": 1}')
    done = run("collectives", "-b", "bogus", "-o", str(earlier))
    assert (done.returncode, done.stdout) == (2, "")
