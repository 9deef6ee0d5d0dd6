"""What a trace says about a step: exact numbers on a small one made by hand, and beside a prediction."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.predict.calibrate import calibrate
from trainwright.predict.intervals import Intervals
from trainwright.predict.nsight import nsight_trace
from trainwright.predict.prediction import predict
from trainwright.predict.request import PredictRequest
from trainwright.predict.trace import kind_of, profile_of, read_trace
from trainwright.predict.trace_merge import merged
from trainwright.predict.trace_terms import TERMS, compare, in_words, measured_terms, record


def event(category: str, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """Times in milliseconds."""
    return {"ph": "X", "cat": category, "name": name, "ts": start * 1e3, "dur": (end - start) * 1e3, **more}


# Two steps of 100 ms. The host is ahead: the GPU ends 20 ms after the host's last step.
GPU = {
    "distributedInfo": {"rank": 3, "world_size": 8},
    "traceEvents": [
        event("user_annotation", "ProfilerStep#10", 0, 90, pid=1, tid=1),
        event("user_annotation", "ProfilerStep#11", 90, 180, pid=1, tid=1),
        event("user_annotation", "data wait", 90, 110, pid=1, tid=1),
        event("user_annotation", "Optimizer.step#AdamW.step", 80, 85, pid=1, tid=1),
        event("cuda_runtime", "cudaLaunchKernel", 82, 83, pid=1, tid=1, args={"correlation": 9}),
        event("kernel", "nvjet_hsh_256x128_64x4", 0, 60, pid=0, tid=7),
        event("kernel", "void pytorch_flash::flash_fwd_kernel<Traits<128>>(Params)", 60, 80, pid=0, tid=7),
        event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 70, 100, pid=0, tid=9),
        event("kernel", "triton_poi_fused_add_0", 110, 120, pid=0, tid=7),
        event("kernel", "sm90_xmma_gemm_bf16", 120, 150, pid=0, tid=7),
        event("kernel", "void at::native::elementwise_kernel<4>(int)", 150, 170, args={"correlation": 9}),
        event("gpu_memcpy", "Memcpy HtoD", 170, 200, pid=0, tid=8),
        event("kernel", "after the window", 900, 950, pid=0, tid=7) | {"ts": -5e3, "dur": 1e3},
        {"ph": "i", "name": "Iteration Start", "ts": 0},
    ],
}


def test_a_gpu_trace_adds_up() -> None:
    profile = profile_of(GPU)
    assert (profile.rank, profile.ranks, profile.device, profile.steps) == (3, 8, "cuda", 2)
    assert profile.step_s == pytest.approx(0.1)
    expected = {"products": 0.045, "attention": 0.01, "elementwise": 0.005, "optimizer": 0.01, "copies": 0.015}
    assert profile.compute == pytest.approx(expected)
    assert (profile.exposed_s, profile.hidden_s) == pytest.approx((0.01, 0.005))
    assert profile.overlap == pytest.approx(1 / 3)
    assert (profile.data_wait_s, profile.idle_s) == pytest.approx((0.005, 0.0))
    assert sum(measured_terms(profile).values()) == pytest.approx(profile.step_s)
    assert profile.kernels[0].name == "nvjet_hsh_256x128_64x4"
    assert {kernel.name for kernel in profile.kernels} >= {"pytorch_flash::flash_fwd_kernel", "Memcpy HtoD"}


def test_an_operator_counts_its_own_time_on_a_cpu() -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100, pid=1, tid=1),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 0, 50, pid=1, tid=1),
        event("cpu_op", "aten::matmul", 10, 40, pid=1, tid=1),
        event("cpu_op", "aten::mm", 15, 40, pid=1, tid=1),
        event("cpu_op", "aten::add", 60, 70, pid=1, tid=1),
        event("cpu_op", "c10d::allreduce_", 70, 72, pid=1, tid=1),
        event("user_annotation", "gloo:all_reduce", 65, 95, pid=1, tid=2),
        event("user_annotation", "optimizer", 96, 100, pid=1, tid=1),
        event("cpu_op", "aten::mul_", 97, 99, pid=1, tid=1),
    ]
    profile = profile_of({"traceEvents": events})
    assert (profile.device, profile.step_s) == ("cpu", pytest.approx(0.1))
    expected = {"products": 0.03, "attention": 0, "elementwise": 0.01, "optimizer": 0.002, "copies": 0}
    assert profile.compute == pytest.approx(expected)
    assert (profile.exposed_s, profile.hidden_s) == pytest.approx((0.025, 0.005))
    assert profile.idle_s == pytest.approx(0.033)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)", "products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7x128x128", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>(x)", "optimizer"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "communication"),
        ("gloo:reduce_scatter", "communication"),
        ("triton_red_fused__to_copy_rms_norm_3", "elementwise"),
        ("void at::native::elementwise_kernel<4, gpu_kernel_impl<f>(x)::{lambda(int)#1}>(int)", "elementwise"),
        ("aten::addmm", "products"),
        ("aten::mm", "products"),
        ("aten::mm_extra", "elementwise"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
    ],
)
def test_kernels_are_sorted_by_their_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


@given(SPANS, SPANS)
def test_intervals_are_sets_of_points(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    def points(spans: list[tuple[int, int]]) -> set[int]:
        return {point for start, end in spans for point in range(start, end)}

    a, b = Intervals(first), Intervals(second)
    assert (a & b).length == len(points(first) & points(second))
    assert (a - b).length == len(points(first) - points(second))
    assert Intervals.union((a, b)).length == len(points(first) | points(second))


def test_the_terms_cover_the_whole_prediction() -> None:
    prediction = predict(PredictRequest(model="llama3-8b", instance="p5.48xlarge", nodes=2))
    named = [part for parts in TERMS.values() for part in parts]
    assert sorted(named) == sorted(prediction.parts)
    facts = prediction.to_dict()
    profile = profile_of(GPU)
    terms = compare(profile, facts)
    assert sum(term.predicted_s or 0 for term in terms) == pytest.approx(prediction.step_time_s)
    words = "\n".join(in_words(profile, terms, facts))
    assert "2 steps of 100.0 ms on a GPU: 85% compute, 10% exposed communication, 5% waiting for data, 0% idle" in words
    assert "33% of it runs behind compute" in words
    assert "% faster than the predicted" in words
    assert "matrix products -" in words


def test_a_profile_teaches_the_predictor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs with the same speed, the profile says whether the products or something else is slow."""
    prediction = predict(PredictRequest(model="llama3-8b", instance="p5.48xlarge", nodes=2)).to_dict()
    rates = {}
    for name, products, waited in (("plain", None, 0), ("slow", 1.2, 0), ("as predicted", 1, 0), ("no data", 1, 0.1)):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name / "config"))
        run = tmp_path / name / "run"
        (run / "profile").mkdir(parents=True)
        (run / "prediction.json").write_text(json.dumps(prediction))
        speed = {"tokens_per_s": prediction["tokens_per_s"] * 0.9}
        (run / "metrics.jsonl").write_text("".join(json.dumps(speed) + "\n" for _ in range(8)))
        if products is not None:
            seconds = products * sum(prediction["parts"][part] for part in TERMS["matrix products"])
            rest = prediction["step_time_s"] / 0.9 * (1 - waited) - seconds
            values = {"matrix products": seconds, "idle": rest, "data wait": prediction["step_time_s"] / 0.9 * waited}
            terms = [{"name": name, "measured_s": value, "predicted_s": None} for name, value in values.items()]
            summary = {"ranks": [{"device": "cuda", "terms": terms}]}
            (run / "profile/summary.json").write_text(json.dumps(summary))
        changes = {change.name: change for change in calibrate([run])}
        change = changes.get("matmul_sustained_hopper")
        rates[name] = change.after / change.before if change else 1.0
    assert rates["slow"] < rates["plain"] < rates["as predicted"] < rates["no data"] == 1.0


def test_traces_of_ranks_become_one_with_the_prediction(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 8):
        trace = {**GPU, "distributedInfo": {"rank": rank, "world_size": 16}}
        trace["traceEvents"] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "python"}}] + [
            {**row, "ts": row["ts"] + rank * 1e9} for row in GPU["traceEvents"]
        ]
        paths.append(tmp_path / f"rank-{rank:05d}.json.gz")
        paths[-1].write_bytes(gzip.compress(json.dumps(trace).encode()))
    prediction = {"parts": {"products": 0.05, "fixed": 0.01}, "hidden_communication_s": 0.002}
    rows = merged(paths, prediction)["traceEvents"]
    names = {row["args"]["name"] for row in rows if row["ph"] == "M"}
    assert names == {"predicted step", "rank 0: python", "rank 8: python"}
    starts = [row["ts"] for row in rows if row["name"] == "ProfilerStep#10"]
    assert starts == [0, 0]  # the clocks of two nodes differ
    assert [row["dur"] for row in rows if row.get("cat") == "predicted"] == pytest.approx([50e3, 10e3, 2e3])

    done = CliRunner().invoke(cli, ["profile", *map(str, paths), "--trace", str(tmp_path / "all.json.gz"), "--json"])
    assert done.exit_code == 0, done.output
    assert [row["rank"] for row in json.loads(done.stdout)["ranks"]] == [0, 8]
    assert profile_of(read_trace(tmp_path / "all.json.gz")).steps == 2
    shown = CliRunner().invoke(cli, ["profile", str(paths[0])])
    assert "LARGEST KERNELS" in shown.stdout


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"traceEvents": []}', b'{"x": 1}', b"\x1f\x8b garbage"])
def test_what_is_no_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(UserError):
        profile_of(read_trace(path), str(path))
    done = CliRunner().invoke(cli, ["profile", str(path)])
    assert isinstance(done.exception, UserError)


def test_a_report_of_nsight_systems(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "sm90_gemm"), (2, "ncclDevKernel_AllReduce")])
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER)")
        rows = [(0, 60_000_000, 1), (50_000_000, 100_000_000, 2)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", rows)
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT)")
    profile = profile_of(nsight_trace(path))
    assert profile.compute["products"] == pytest.approx(0.06)
    assert (profile.exposed_s, profile.hidden_s) == pytest.approx((0.04, 0.01))
    assert record([profile], None)["ranks"][0]["terms"][0]["predicted_s"] is None
