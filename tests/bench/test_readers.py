"""Readers of other programs' output: nccl-tests in any prefix and type, nccom-test, NCCL's own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.bench.nccl_output import read_output
from trainwright.bench.transport import judge_transport, read_log
from trainwright.cli.bench import command
from trainwright.errors import UserError
from trainwright.report.bench_files import collective_result

LOGS = Path(__file__).parent / "logs"


def log(name: str) -> str:
    return (LOGS / name).read_text()


def test_mpirun_prefixes_and_rank_lines_are_read() -> None:
    output = read_output(log("p5-2-nodes.log"))
    assert (output.program, output.ranks, output.hosts) == ("nccl-tests", 16, ("p5-dy-1", "p5-dy-2"))
    assert [line.size for line in output.rows] == [2**26, 2**29, 2**31, 2**33]
    assert output.rows[0].out_busbw == 209.2
    assert output.rows[0].in_time_us == 604.2
    assert (output.average, output.wrong) == (381.10, 0)


def test_bfloat16_with_slurm_labels_and_wrong_elements() -> None:
    output = read_output(log("bfloat16-slurm-prefix.log"), op="all_reduce")
    assert [line.dtype for line in output.rows] == ["bfloat16", "bfloat16"]
    assert output.wrong == 2
    assert output.ranks == 24  # from busbw / algbw = 1.917
    assert output.rows[1].in_wrong is None


def test_old_columns_without_a_root_are_read() -> None:
    output = read_output(log("alltoall-old.log"))
    assert output.operations == ("all_to_all",)
    assert output.rows[1].out_busbw == 74.57
    assert output.rows[1].out_time_us == 13500.0
    assert output.ranks == 16


def test_nccom_test_is_read() -> None:
    output = read_output(log("nccom-trn1.log"))
    assert (output.program, output.operations, output.ranks) == ("nccom-test", ("all_reduce",), 32)
    assert [line.out_busbw for line in output.rows] == [5.89, 51.95, 113.03]


def test_a_log_without_figures_or_name_says_so() -> None:
    with pytest.raises(UserError, match="no line of figures"):
        read_output("nothing here")
    with pytest.raises(UserError, match="which collective"):
        read_output(log("bfloat16-slurm-prefix.log"))


@pytest.mark.parametrize(
    ("name", "cards", "status", "words"),
    [
        ("nccl-efa.log", 32, "pass", "EFA, 32 cards, GPUDirect RDMA; inside a node: NVLink"),
        ("nccl-sockets.log", 32, "fail", "went over sockets"),
        ("nccl-few-cards.log", 32, "fail", "found 31 of 32 EFA cards"),
        ("nccl-sockets.log", 0, "pass", "sockets"),
        ("nccl-ib.log", 0, "fail", "through shared memory, not NVLink"),
    ],
)
def test_the_transport_is_named_and_a_silent_fallback_fails(name: str, cards: int, status: str, words: str) -> None:
    verdict = judge_transport(read_log(log(name)), 2, cards, nvlink=True)
    assert verdict.status == status, verdict
    assert words in verdict.reason


def test_why_the_plugin_was_not_used_is_quoted() -> None:
    verdict = judge_transport(read_log(log("nccl-sockets.log")), 2, 32, nvlink=True)
    assert any("libnccl-net.so" in note for note in verdict.notes)


def test_infiniband_cards_are_counted() -> None:
    traffic = read_log(log("nccl-ib.log"))
    assert (traffic.main, traffic.cards, traffic.direct) == ("InfiniBand", 4, True)


def test_libfabric_over_tcp_is_not_efa() -> None:
    text = log("nccl-efa.log").replace("provider is efa, fabric is efa-direct", "provider is tcp, fabric is tcp")
    assert judge_transport(read_log(text), 2, 32, nvlink=True).status == "fail"


def test_judge_prints_limits_and_writes_every_file(tmp_path: Path) -> None:
    files = ["--csv", str(tmp_path / "a.csv"), "--plot", str(tmp_path / "a.svg")]
    words = ["judge", str(LOGS / "p5-2-nodes.log"), "--instance", "p5.48xlarge", *files]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert "floor 382.8, ceiling 750.0" in done.output
    assert (tmp_path / "a.csv").read_text().count("\n") == 5
    assert (tmp_path / "a.svg").read_text().count("<polyline") == 4  # measured, predicted, floor, ceiling


def test_judge_exits_1_on_a_silent_fallback() -> None:
    words = ["judge", str(LOGS / "p5-2-nodes.log"), "--instance", "p5.48xlarge", "--json"]
    done = CliRunner().invoke(command, [*words, "--nccl-log", str(LOGS / "nccl-sockets.log")])
    assert done.exit_code == 1
    assert {v["op"]: v["status"] for v in json.loads(done.stdout)["verdicts"]} == {
        "all_reduce": "pass",
        "transport": "fail",
    }


HEAD = "# all_reduce_perf\n#  Rank  0 Pid 1 on a device 0\n#  Rank  1 Pid 2 on b device 0\n"
ROW = '{"op":"all_reduce","size":8,"out_busbw":1,"in_busbw":1,"out_wrong":0,"in_wrong":0}'


@pytest.mark.parametrize(
    "text",
    [
        "{broken",
        '{"kind":"collectives"}',
        '{"kind":"collectives","ranks":2,"nodes":1,"rows":[{}]}',
        '{"kind":"collectives","ranks":2,"nodes":1,"rows":5}',
        '{"kind":"collectives","ranks":2,"nodes":1,"rows":[' + ROW.replace("8", "NaN") + "]}",
        '{"kind":"collectives","ranks":"2","nodes":1,"rows":[' + ROW + "]}",
        HEAD + "9" * 5000 + " 256 float sum -1 1 1 1 0 1 1 1 0",
        "# all_reduce_perf\n 1024 256 float sum -1 1 1 1 0 1 1 1 0",
    ],
)
def test_a_damaged_result_or_log_is_refused_without_a_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError) as caught:
        collective_result(tmp_path / "file", "", 2, None)
    assert "--nodes" not in caught.value.fix  # it was given


@pytest.mark.parametrize("cells", ["-1 1 1 1 1e999 1 1 1 0", "1.5 1 1 1 0 1 1 1 0"])
def test_figures_that_cannot_be_are_left_out(tmp_path: Path, cells: str) -> None:
    more = "\n# Avg bus bandwidth    : 1.2.3\nrank 0 nranks " + "9" * 5000
    (tmp_path / "file").write_text(f"{HEAD} 1024 256 float sum {cells}{more}")
    assert collective_result(tmp_path / "file", "", 2, None)["rows"][0]["out_busbw"] == 1
