"""Collectives over real gloo ranks: every operation right, the table readable, the result complete."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainwright.bench.collectives import NAMES
from trainwright.bench.nccl_output import read_output
from trainwright.bench.operations import OPERATIONS, Group, modulus, pattern, summed, wrong_elements
from trainwright.bench.ranks import colour, split_of
from trainwright.errors import UserError


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainwright.bench", "collectives", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def test_every_collective_over_three_ranks_gives_right_results(tmp_path: Path) -> None:
    files = ["--csv", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "result.json")]
    done = bench("--op", "all", "-b", "1K", "-e", "32K", "-f", "32", "-n", "2", "-w", "1", "--processes", "3", *files)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert {row["op"] for row in result["rows"]} == set(NAMES)
    assert (result["ranks"], result["nodes"], result["backend"]) == (3, 1, "gloo")
    assert result["machine"]["torch"] == torch.__version__
    for row in result["rows"]:
        forms = [form for form in ("out", "in") if row[f"{form}_time_us"] is not None]
        assert forms, row
        for form in forms:
            assert row[f"{form}_wrong"] == 0, row
            assert row[f"{form}_busbw"] == pytest.approx(row[f"{form}_algbw"] * OPERATIONS[row["op"]].bus(3), abs=2e-4)
    with (tmp_path / "rows.csv").open() as handle:
        assert [row["op"] for row in csv.DictReader(handle)] == [row["op"] for row in result["rows"]]
    # What we print is read by the reader of nccl-tests' output.
    output = read_output(done.stdout)
    assert output.operations == NAMES
    assert [line.size for line in output.rows] == [row["size"] for row in result["rows"]]


def test_split_communicators_measure_at_once_and_each_is_named(tmp_path: Path) -> None:
    words = ["--split", "MOD 2", "-b", "4K", "-e", "4K", "-n", "2", "-d", "bfloat16", "--processes", "4", "--json"]
    done = bench(*words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["groups"], result["group_size"]) == (2, 2)
    assert set(result["by_group"][0]["busbw"]) == {"0", "1"}
    assert "2 communicators of 2 ranks" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_element_is_counted(name: str) -> None:
    """A result as the collective would leave it passes; with one element changed, one is wrong."""
    op, group = OPERATIONS[name], Group(0, (0, 1))
    share = torch.zeros(8)
    parts = []
    for part in range(2 if op.split and op.result_parts == 0 else 1):
        kind, source = op.expected(part, group)
        start = source * 8 if op.split else 0
        parts.append(summed(share, 2, start) if kind == "sum" else pattern(share, 2, int(kind.split()[1]), start))
    result = torch.cat(parts)
    assert wrong_elements(op, result, group) == 0
    result[5] += 1
    assert wrong_elements(op, result, group) == 1


def test_sums_are_exact_in_every_type() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8):
        for ranks in (2, 8, 64):
            top = (modulus(dtype, ranks) - 1) * ranks
            if modulus(dtype, ranks) > 2:
                assert torch.tensor(top, dtype=torch.int64).to(dtype).to(torch.int64).item() == top


def test_splits_are_read_as_nccl_tests_reads_them() -> None:
    assert [colour(rank, "AND 0x3") for rank in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [colour(rank, "DIV 4") for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [colour(rank, "MOD:2") for rank in range(4)] == [0, 1, 0, 1]
    assert split_of({"NCCL_TESTS_SPLIT_MASK": "0x7"}, "") == "AND 0x7"
    with pytest.raises(UserError):
        colour(0, "XOR 3")


def test_wrong_words_end_with_status_2_and_no_traceback() -> None:
    done = bench("--op", "all_reduec")
    assert done.returncode == 2
    assert "did you mean 'all_reduce'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_that_only_the_ranks_can_see_ends_all_of_them() -> None:
    environment = {**os.environ, "NCCL_TESTS_SPLIT": "MOD 0"}
    command = [sys.executable, "-m", "trainwright.bench", "collectives", "-e", "1K"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("cannot split") == 1
    assert "Traceback" not in done.stderr


def test_the_command_line_adds_the_verdict(tmp_path: Path) -> None:
    """Two ranks of one machine whose links nobody knows: the verdict is skip, with the reason."""
    words = [
        "-b",
        "1M",
        "-e",
        "1M",
        "-n",
        "2",
        "-w",
        "1",
        "--form",
        "in-place",
        "-o",
        str(tmp_path / "r.json"),
        "--json",
    ]
    done = subprocess.run(["trainwright", "bench", "collectives", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "r.json").read_text())
    assert [(v["op"], v["status"]) for v in result["verdicts"]] == [("all_reduce", "skip")]
    assert result["rows"][0]["out_busbw"] is None


def test_one_node_has_nothing_to_search() -> None:
    done = bench("--find-slow", "-e", "64K")
    assert done.returncode == 2
    assert "at least two nodes" in done.stderr
