"""`predict --calibrate`: what runs and measurements change, and settings that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from predict_commands import ISSUE, run

from trainwright.cli.predict import command as predict_command
from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.predict.constants import constants
from trainwright.predict.evidence import NEW_SOURCE
from trainwright.predict.hardware import device


def make_run(folder: Path, pace: float) -> Path:
    folder.mkdir()
    said = predict(PredictRequest("llama3-8b", "p5.48xlarge", 2, "shard=16", sequence=8192, batch_tokens=2**20))
    (folder / "prediction.json").write_text(json.dumps(said.to_dict()), encoding="utf-8")
    lines = [{"step": i, "tokens_per_s": said.tokens_per_s * pace * (0.5 if i == 0 else 1)} for i in range(10)]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return folder


def test_calibration_moves_one_number_and_the_next_prediction_with_it(tmp_path: Path):
    words = ["--model", "llama3-8b", "--instance", "p5.48xlarge", "--nodes", "2", "--parallel", "shard=16",
             "--sequence", "8192", "--batch", "1048576", "--json"]  # fmt: skip
    before = json.loads(run(*words).stdout)["tokens_per_s"]
    out = run("--calibrate", str(make_run(tmp_path / "a", 0.9)), str(make_run(tmp_path / "b", 0.9))).stdout
    assert "matmul_sustained_hopper" in out
    assert "error on 2 measured" in out
    record = json.loads(run(*words).stdout)
    assert record["tokens_per_s"] == pytest.approx(before * 0.9, rel=0.01)
    assert NEW_SOURCE not in record["outside_evidence"]
    other = json.loads(run("--model", "llama3-8b", "--instance", "p4de.24xlarge", "--json").stdout)
    assert NEW_SOURCE in other["outside_evidence"], "runs on one generation say nothing of another"


def test_what_a_run_of_a_cluster_teaches_holds_for_that_cluster(tmp_path: Path):
    slow = make_run(tmp_path / "a", 0.9)
    record = json.loads((slow / "prediction.json").read_text(encoding="utf-8"))
    (slow / "prediction.json").write_text(json.dumps({**record, "cluster": "alpha"}), encoding="utf-8")
    assert "cluster alpha: matmul_sustained_hopper" in run("--calibrate", str(slow)).stdout
    spec = """
    {name: NAME, platform: parallelcluster, region: us-east-1, head: {instance: m5.2xlarge, key: k},
     queues: [{name: train, instance: p5.48xlarge, count: 2}], storage: [{mount: /fsx, lustre: {}}],
     jobs: [{name: j, model: llama3-8b, nodes: 2, parallel: {shard: 16}, sequence: 8192, steps: 10,
             batch: {sequences: 128, micro_batch: 1}, data: /fsx/data}]}"""
    rates, seen = {}, {}
    for name in ("alpha", "beta"):
        (tmp_path / f"{name}.yaml").write_text(spec.replace("NAME", name), encoding="utf-8")
        said = json.loads(run(str(tmp_path / f"{name}.yaml"), "--json").stdout)
        assert said["cluster"] == name
        rates[name], seen[name] = said["tokens_per_s"], NEW_SOURCE not in said["outside_evidence"]
    assert rates["alpha"] == pytest.approx(rates["beta"] * 0.9, rel=0.02)
    assert seen == {"alpha": True, "beta": False}


def test_calibration_keeps_what_the_runs_do_not_inform(tmp_path: Path):
    """A run without tensor or expert parallelism says nothing of either; a run as predicted changes nothing."""
    out = run("--calibrate", str(make_run(tmp_path / "a", 0.95))).stdout
    assert "tp_overlap_hidden" not in out
    assert "alltoall_exposed" not in out
    (tmp_path / "config" / "trainwright" / "predict.json").unlink()
    assert "nothing changed" in run("--calibrate", str(make_run(tmp_path / "b", 1.0))).stdout


def device_file(path: Path, pace: float, gpu: str = "NVIDIA H200") -> Path:
    """A result of `bench device` on two GPUs whose best bf16 product is `pace` times what predictions count on."""
    assumed = device("h200").matmul_rate("bf16", constants()) / 1e12
    rows = [
        {"device": f"cuda:{i}", "kind": kind, "name": "", "value": assumed * pace * part, "unit": "TFLOP/s"}
        for i in range(2) for kind, part in (("matmul bf16", 1.0), ("matmul bf16", 0.8), ("matmul fp8", 9.0))
    ]  # fmt: skip
    path.write_text(json.dumps({"kind": "device", "machine": {"gpu": gpu}, "rows": rows}), encoding="utf-8")
    return path


def test_a_device_measurement_moves_the_matmul_rate_less_than_a_run(tmp_path: Path):
    words = ["--model", "llama3-8b", "--instance", "p5en.48xlarge", "--json"]
    before = json.loads(run(*words).stdout)["tokens_per_s"]
    out = run("--calibrate", str(device_file(tmp_path / "device.json", 0.9))).stdout
    assert out.startswith("matmul_sustained_hopper")
    assert len(out.splitlines()) == 1, "a product says nothing of communication"
    after = json.loads(run(*words).stdout)
    assert 0.91 < after["tokens_per_s"] / before < 0.96
    assert NEW_SOURCE in after["outside_evidence"], "a product is no run of this cluster"
    (tmp_path / "config" / "trainwright" / "predict.json").unlink()
    assert "nothing changed" in run("--calibrate", str(device_file(tmp_path / "device.json", 1.0))).stdout


@pytest.mark.parametrize("gpu", ["", "AMD EPYC"])
def test_a_device_result_without_a_known_gpu_is_refused(tmp_path: Path, gpu: str):
    with pytest.raises(UserError, match="no bf16 product of a GPU"):
        CliRunner().invoke(
            predict_command, ["--calibrate", str(device_file(tmp_path / "d.json", 1.0, gpu))], catch_exceptions=False
        )
    (tmp_path / "d.json").write_text("[]")
    with pytest.raises(UserError, match="is no result of"):
        CliRunner().invoke(predict_command, ["--calibrate", str(tmp_path / "d.json")], catch_exceptions=False)


def test_a_calibration_far_from_the_published_rows_is_questioned(tmp_path: Path):
    result = run("--calibrate", str(make_run(tmp_path / "a", 0.6)))
    assert "sigmas from what published runs give" in result.stderr


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"metrics.jsonl is missing"):
        CliRunner().invoke(predict_command, ["--calibrate", str(tmp_path)], catch_exceptions=False)


BROKEN_SETTINGS = {
    "not JSON": "{",
    "not an object": "[1]",
    "an unknown name": '{"matmul_sustained_hoper": 0.7}',
    "no number": '{"step_fixed": "fast"}',
    "not finite": '{"step_fixed": NaN}',
    "a bool": '{"step_fixed": true}',
    "not above zero": '{"step_fixed": -1}',
}


@pytest.mark.parametrize("text", BROKEN_SETTINGS.values(), ids=list(BROKEN_SETTINGS))
def test_broken_settings_are_named_with_their_path(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config" / "trainwright" / "predict.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        run(*ISSUE)
    assert str(path) in caught.value.where
    assert "--calibrate" in caught.value.fix


def test_submit_only_warns_of_broken_settings(tmp_path: Path) -> None:
    from trainwright.cli.main import cli

    path = tmp_path / "config" / "trainwright" / "predict.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: c\nplatform: parallelcluster\nregion: us-east-2\nqueues: [{name: q, instance: p5.48xlarge, count: 2}]\n"
        "storage: [{mount: /fsx, lustre: {}}]\njobs: [{name: j, recipe: llama3.1-8b}]\n"
    )
    done = CliRunner().invoke(cli, ["submit", str(spec), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "#SBATCH" in done.stdout
    assert f"not predicted: {path}" in done.stderr
