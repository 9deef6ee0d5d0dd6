"""The command lines: tables, JSON, explanations, pictures, comparisons, rows, calibration, and bad input."""

from __future__ import annotations

import csv
import json
import random
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.advise import command as advise_command
from trainwright.cli.check import command as check_command
from trainwright.cli.predict import command as predict_command
from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.predict.advice import NoOffer
from trainwright.predict.constants import constants
from trainwright.predict.evidence import NEW_SOURCE, SCALES
from trainwright.predict.hardware import device
from trainwright.spec.starters import starters
from trainwright.train.models.shape import shapes

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
ISSUE = ["--model", "llama3-70b", "--instance", "p5.48xlarge", "--nodes", "16", "--parallel", "shard=16,tp=8",
         "--sequence", "8192", "--batch", "4M"]  # fmt: skip
FLOAT8 = """
name: scales
platform: parallelcluster
region: us-east-2
queues: [{name: train, instance: p5.48xlarge, count: 2}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 250}}]
jobs:
  - {name: tensor, recipe: llama3-8b, nodes: 2, precision: fp8}
  - {name: rows, recipe: llama3-8b, nodes: 2, float8: rowwise}
  - {name: blocks, recipe: llama3-8b, nodes: 2, args: [--float8, blockwise]}
"""


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*words: str, code: int = 0, of=predict_command):
    result = CliRunner().invoke(of, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_the_issues_example_prints_the_answer_and_the_bar():
    out = run(*ISSUE).stdout
    assert "llama3-70b on 16 x p5.48xlarge (128 GPUs)" in out
    for word in ("step", "tokens/s", "MFU", "memory", "goodput", "cost", "matrix products", "####"):
        assert word in out


def test_json_is_the_prediction():
    record = json.loads(run(*ISSUE, "--json").stdout)
    assert record["gpus"] == 128
    assert record["tokens_per_step"] == 512 * 8192
    assert record["step_time_s"] == pytest.approx(sum(record["parts"].values()))
    request = PredictRequest("llama3-70b", "p5.48xlarge", 16, "shard=16,tp=8", sequence=8192, batch_tokens=4_000_000)
    assert record == json.loads(json.dumps(predict(request).to_dict()))


def test_explain_shows_every_term_with_numbers():
    out = run(*ISSUE, "--explain").stdout
    for term in (
        "matmul rate",
        "weight gather, one layer",
        "memory: state",
        "goodput, simulated",
        "dollars per trillion tokens",
    ):
        assert term in out
    assert "6 x 855.6 M x 16,384 / tp 8" in out


@pytest.mark.parametrize(
    ("trainer", "words"),
    [("trainwright", "attention scores, the output head, routed experts and their router"),
     ("megatron", "attention scores and the output head")],
)  # fmt: skip
def test_explain_names_what_stays_bf16_under_fp8(trainer, words):
    job = ("--model", "mixtral-8x7b", "--instance", "p5.48xlarge", "--nodes", "8", "--parallel", "shard=64,ep=8",
           "--trainer", trainer, "--explain")  # fmt: skip
    lines = run(*job, "--precision", "fp8").stdout.splitlines()
    (line,) = (line for line in lines if "stays bf16" in line)
    assert words in line
    assert ("experts at" in line) == (trainer == "trainwright")
    (ideal,) = (line for line in lines if "products, one layer" in line)
    share = float(ideal.rsplit("(", 1)[1].split("%")[0])
    assert 50 < share <= 100, "the ideal has the rates of both"
    assert "stays bf16" not in run(*job, "--precision", "bf16").stdout


def test_compare_puts_plans_side_by_side():
    lines = run(*ISSUE, "--compare", "shard=128", "--compare", "shard=8,tp=8,pp=2").stdout.splitlines()
    assert lines[0].split()[0] == "plan"
    assert [line.split()[0] for line in lines[1:4]] == ["shard=16,tp=8", "shard=128", "shard=8,tp=8,pp=2"]
    assert sum("100%" in line for line in lines) == 1


def test_the_picture_has_a_lane_for_every_stage(tmp_path: Path):
    path = tmp_path / "step.svg"
    run("--model", "llama3-8b", "--instance", "p5.48xlarge", "--nodes", "2", "--parallel", "pp=4", "--batch", "512k",
        "--svg", str(path))  # fmt: skip
    tree = ET.parse(path)
    words = [node.text or "" for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(word.startswith("stage ") for word in words) == 4
    assert "waiting for communication" in words
    assert words[0].split(": ")[1].removesuffix(" per step") in words, "the axis ends where the step does"
    boxes = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(boxes) > 4 * 2 * 8
    assert all(float(box.get("x", "-1")) >= 0 for box in boxes)


def test_a_float8_recipe_is_named_and_said_to_be_unmeasured_where_it_is(tmp_path: Path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(FLOAT8)
    plain, rows, blocks = (run(str(spec), name).stdout for name in ("tensor", "rows", "blocks"))
    assert ", fp8, " in plain
    assert SCALES not in plain
    assert ", fp8 rowwise, " in rows
    assert ", fp8 blockwise, " in blocks
    assert SCALES not in rows + blocks
    assert json.loads(run(str(spec), "blocks", "--json").stdout)["setup"]["float8"] == "blockwise"
    spec.write_text(FLOAT8.replace("p5.48xlarge", "p6-b200.48xlarge").replace("float8: rowwise", "float8: mxfp8"))
    finer = run(str(spec), "rows").stdout
    assert ", fp8 mxfp8, " in finer
    assert SCALES in finer
    assert SCALES in json.loads(run(str(spec), "rows", "--json").stdout)["outside_evidence"]


def test_one_scale_per_row_of_another_trainer_is_predicted_from_published_runs():
    request = PredictRequest("llama3-8b", "p5.48xlarge", 1, sequence=8192, precision="fp8", trainer="torchtitan")
    plain, rows = predict(request), predict(replace(request, float8="rowwise"))
    assert rows.step_time_s > 1.1 * plain.step_time_s
    assert SCALES not in rows.outside_evidence


@pytest.mark.parametrize("starter", [starter.name for starter in starters()])
def test_every_job_of_a_starter_fits_in_memory(starter: str):
    path = Path(__file__).parents[2] / "examples" / f"{starter}.yaml"
    spec = yaml.safe_load(path.read_text())
    for job in spec.get("jobs", ()):
        if "recipe" in job or "model" in job:  # of another program's model nothing is known
            run(str(path), job["name"])


def test_what_does_not_fit_fails_and_offers_the_nearest_that_does():
    result = run("--model", "llama3-70b", "--instance", "p5.48xlarge", "--batch", "64k", code=1)
    assert "DOES NOT FIT" in result.stdout
    assert "it needs 1" in result.stderr
    words = result.stderr.split("the nearest that fits: ")[1].split()
    again = run("--model", "llama3-70b", "--instance", "p5.48xlarge", "--batch", "64k", *words)
    assert ": fits" in again.stdout


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["--model", "lama3-70b", "--instance", "p5.48xlarge"], "no model named", "llama3-70b"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarg"], "no instance type", "p5.48xlarge"),
        (
            ["--model", "llama3-8b", "--instance", "p5"],
            "no instance type",
            "p5 is a family: p5.48xlarge, p5.4xlarge",
        ),
        (["--model", "llama3-8b", "--instance", "m5.large"], "no accelerator", "p or g"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--trainer", "torchtitn"], "no trainer", "torchtitan"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--batch", "many"], "not a quantity", "4M"),
        ([], "nothing to predict", "--model"),
        (["--rows", "nowhere.csv"], "no file", "CSV"),
        (["--calibrate"], "no run", "RUN"),
    ],
)
def test_bad_input_is_answered_in_three_parts(words, what, fix):
    with pytest.raises(UserError, match=what) as caught:
        CliRunner().invoke(predict_command, words, catch_exceptions=False)
    assert fix in caught.value.fix


def test_rows_are_answered_in_order_with_the_fields_asked_for():
    answers = json.loads(run("--rows", str(DATA / "published_training.csv"), "--json").stdout)
    with open(DATA / "published_training.csv", newline="", encoding="utf-8") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    assert [answer["id"] for answer in answers] == ids
    fields = {"id", "covered", "reason", "tokens_per_s_per_gpu", "step_time_s", "mem_gib_per_gpu", "low", "high"}
    for answer in answers:
        assert set(answer) == fields
        assert answer["covered"] or answer["reason"]
        if answer["covered"]:
            assert 0 < answer["low"] < answer["tokens_per_s_per_gpu"] < answer["high"]


def test_a_collectives_table_is_known_by_its_columns():
    answers = json.loads(run("--rows", str(DATA / "published_collectives.csv"), "--json").stdout)
    assert {"id", "covered", "reason", "busbw_gb_s"} == set(answers[0])
    assert answers[0]["covered"]
    assert any(not a["covered"] and a["reason"] for a in answers)


def test_blank_and_broken_cells_do_not_stop_a_table(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,model,gpu,num_gpus,seq_len,micro_batch,tp,notes\n"
        "a,llama3-8b,H100-SXM-80GB,8,,,,\n"
        "b,unheard-of,H100,8,2048,1,1,\n"
        "c,llama3-8b,Abacus,8,2048,1,1,\n"
        "d,llama3-8b,H100,7,2048,1,2,\n"
        "e,llama3-8b,H100,,,,,\n",
        encoding="utf-8",
    )
    answers = json.loads(run("--rows", str(path)).stdout)
    assert [a["covered"] for a in answers] == [True, False, False, False, False]
    assert all(a["reason"] for a in answers[1:])


def test_a_table_without_the_columns_is_refused(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match="no column model"):
        CliRunner().invoke(predict_command, ["--rows", str(path)], catch_exceptions=False)


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


SPEC = """
name: small
platform: parallelcluster
region: us-east-1
queues:
  - {name: train, instance: p5.48xlarge, count: 4}
storage:
  - {mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 250}}
jobs:
  - {name: pretrain, recipe: llama3-8b, queue: train, nodes: 4, parallel: {shard: 32}, batch: {tokens: 4M},
     steps: 1000, checkpoint: {every: 15min, to: /fsx/checkpoints}}
"""


def test_a_job_of_a_spec_is_predicted(tmp_path: Path):
    path = tmp_path / "trainwright.yaml"
    path.write_text(SPEC, encoding="utf-8")
    record = json.loads(run(str(path), "pretrain", "--json").stdout)
    assert (record["model"], record["gpus"], record["plan"]) == ("llama3-8b", 32, "shard=32")
    assert record["needs"]["enough"] is True
    assert record["goodput"]["interval_s"] == 900
    assert 500 < record["storage_usd_month"] < 5000
    assert record["train_days"] > 0
    with pytest.raises(UserError, match="no job 'pretrian'") as caught:
        CliRunner().invoke(predict_command, [str(path), "pretrian"], catch_exceptions=False)
    assert "pretrain" in caught.value.fix


def test_a_flag_beside_a_spec_is_refused_and_set_changes_the_spec(tmp_path: Path):
    path = tmp_path / "trainwright.yaml"
    path.write_text(SPEC, encoding="utf-8")
    with pytest.raises(UserError, match="--nodes cannot be combined") as caught:
        CliRunner().invoke(predict_command, [str(path), "--nodes", "8"], catch_exceptions=False)
    assert "--set" in caught.value.fix
    record = json.loads(run(str(path), "--set", "jobs.pretrain.batch.micro=2", "--json").stdout)
    assert record["micro_batch"] == 2
    with pytest.raises(UserError, match="no spec is named"):
        CliRunner().invoke(predict_command, ["--set", "a=1"], catch_exceptions=False)


def test_advice_is_a_front_and_a_spec_that_loads(tmp_path: Path):
    from trainwright.jobs.resolve import resolve_job
    from trainwright.predict.job import predict_job
    from trainwright.spec.load import load

    path = tmp_path / "advised.yaml"
    words = ["--model", "llama3-8b", "--tokens", "1T", "--deadline", "30d", "--instances", "p5,p4d", "--nodes", "64"]
    out = run(*words, "--spec", str(path), of=advise_command).stdout
    assert "<- chosen" in out
    assert "why not the others" in out
    record = json.loads(run(*words, "--json", of=advise_command).stdout)
    days = [offer["days"] for offer in record["front"]]
    dollars = [offer["usd"] for offer in record["front"]]
    assert days == sorted(days)
    assert dollars == sorted(dollars, reverse=True)
    assert record["chosen"]["days"] <= 30
    assert record["spec"] == yaml.safe_load(path.read_text(encoding="utf-8"))
    again = predict_job(resolve_job(load(path)).require())
    assert again.tokens_per_s == pytest.approx(record["chosen"]["tokens_per_s"], rel=0.01)


def test_the_advised_spec_is_launched_as_it_was_advised(tmp_path: Path):
    """A plan that fits only with recomputation must say so to the trainer, or the job runs out of memory."""
    from trainwright.jobs.command import train_options
    from trainwright.jobs.resolve import resolve_job
    from trainwright.predict.job import predict_job
    from trainwright.spec.load import load

    path = tmp_path / "advised.yaml"
    words = ["--model", "llama3-70b", "--tokens", "1T", "--deadline", "30d", "--instances", "p5", "--nodes", "64"]
    chosen = json.loads(run(*words, "--json", "--spec", str(path), of=advise_command).stdout)["chosen"]
    assert chosen["recompute"] != "none"
    job = resolve_job(load(path)).require()
    again = predict_job(job)
    assert (again.recompute, again.fits) == (chosen["recompute"], "yes")
    assert again.tokens_per_s == pytest.approx(chosen["tokens_per_s"], rel=0.01)
    options = train_options(job, Path("code"))
    assert options[options.index("--recompute") + 1] == chosen["recompute"]


def test_a_job_is_predicted_as_it_would_be_launched(tmp_path: Path):
    """What a spec leaves open is the trainer's default, not whatever would fit."""
    path = tmp_path / "trainwright.yaml"
    queue = {"name": "train", "instance": "p5.48xlarge", "count": 16}
    job = {"name": "pretrain", "model": "llama3-70b", "batch": {"sequences": 512}, "sequence": 8192}
    spec = {"name": "x", "platform": "parallelcluster", "region": "us-east-1", "queues": [queue], "jobs": [job]}
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    found = CliRunner().invoke(predict_command, [str(path), "--json"])
    record = json.loads(found.stdout)
    assert (record["recompute"], record["micro_batch"], record["fits"]) == ("none", 1, "no")
    assert found.exit_code == 1
    assert "recompute: full" in found.stderr
    job["recompute"] = "full"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    assert json.loads(run(str(path), "--json").stdout)["fits"] == "yes"


def test_a_deadline_that_cannot_be_met_names_what_can():
    with pytest.raises(UserError, match="no offer meets") as caught:
        CliRunner().invoke(
            advise_command,
            ["--model", "llama3-70b", "--tokens", "15T", "--deadline", "1h", "--nodes", "8", "--instances", "p5"],
            catch_exceptions=False,
        )  # fmt: skip
    assert "the fastest takes" in caught.value.fix
    assert caught.value.status == 1


def test_neuron_alone_is_refused_honestly():
    with pytest.raises(UserError, match="our trainer needs GPUs"):
        CliRunner().invoke(
            advise_command, ["--model", "llama3-8b", "--tokens", "1T", "--instances", "trn2"], catch_exceptions=False
        )


def test_a_hundred_thousand_candidates_are_searched_quickly():
    """The goal is 5 s for 100,000 on one core; processor time counts, with room for a slow or busy machine."""
    import time

    from trainwright.catalog.models import model
    from trainwright.catalog.prices import KINDS
    from trainwright.predict.advice import advise
    from trainwright.predict.request import AdviceRequest

    start = time.process_time()
    found = advise(AdviceRequest(model("llama3-70b"), 15e12, price_kinds=KINDS))
    assert found.candidates >= 70_000
    assert (time.process_time() - start) / found.candidates * 100_000 < 6.5


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--region", "mars-1"], "no region 'mars-1'"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--tokens", "0"], "--tokens is 0"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--batch", "0"], "--batch is 0"),
        (["--model", "llama3-8b", "--instance", "p5.48xlarge", "--precision", "fp4"], "h100 has no fp4 units"),
        (["--model", "gpt2-124m", "--instance", "g5.2xlarge", "--precision", "fp8"], "a10g has no fp8 units"),
        (["--model", "gpt2-124m", "--instance", "p3.2xlarge", "--precision", "fp8"], "v100-16 has no fp8 units"),
        (["--model", "gpt2-124m", "--instance", "inf1.xlarge", "--nodes", "2"], "Inferentia cannot train"),
    ],
)
def test_what_cannot_be_is_refused(words, what):
    with pytest.raises(UserError, match=what) as caught:
        CliRunner().invoke(predict_command, words, catch_exceptions=False)
    assert caught.value.fix


def test_a_picture_in_a_new_folder_is_written(tmp_path: Path):
    path = tmp_path / "new" / "step.svg"
    run("--model", "llama3-8b", "--instance", "p5.48xlarge", "--svg", str(path))
    assert path.is_file()


def sampled_questions(seed: int, count: int) -> list[list[str]]:
    """Questions to `advise` for models that our trainer has: decoders, encoders, vision, T5; every way to buy."""
    rng = random.Random(seed)
    names = sorted(name for name, shape in shapes().items() if not shape.experts)
    return [
        [
            "--model", rng.choice(names), "--tokens", rng.choice(["90M", "300M", "20B", "1T"]),
            "--capacity", rng.choice(["on-demand", "spot", "capacity-block"]), "--nodes", rng.choice(["2", "4"]),
            "--instances", rng.choice(["p5en", "p5e,g6e.2xlarge", "p4d,p5en", "p5.4xlarge,p5e"]),
            "--precision", rng.choice(["bf16", "fp8"]), "--region", rng.choice(["us-east-1", "us-east-2", "us-west-2"]),
            "--platform", rng.choice(["parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks"]),
        ]
        for _ in range(count)
    ]  # fmt: skip


ADVICE = [
    ["--model", "llama3-8b", "--tokens", "20B", "--capacity", "spot", "--instances", "p5,p5en"],
    ["--model", "llama3-8b", "--tokens", "20B", "--capacity", "capacity-block", "--instances", "p5e,p5en"],
    ["--model", "llama3.1-405b", "--tokens", "20B", "--instances", "p5en", "--nodes", "64"],
    ["--model", "qwen3-4b", "--tokens", "300M", "--instances", "g5.48xlarge", "--nodes", "4"],  # 71.5 steps
    ["--model", "t5-v1.1-small", "--tokens", "1B", "--instances", "p5en", "--nodes", "2"],  # 6 heads of 64 in 512
    *sampled_questions(seed=16, count=6),
]


@pytest.mark.parametrize("words", ADVICE, ids=[f"{i}-{words[1]}" for i, words in enumerate(ADVICE)])
def test_advice_and_the_prediction_of_its_spec_agree(words, tmp_path: Path):
    spec = tmp_path / "advised.yaml"
    try:
        chosen = json.loads(run(*words, "--json", "--spec", str(spec), of=advise_command).stdout)["chosen"]
    except NoOffer:
        return  # no price there, or too large: an answer too
    findings = json.loads(CliRunner().invoke(check_command, [str(spec), "--format", "json"]).stdout)
    assert findings == []
    record = json.loads(run(str(spec), "--json").stdout)
    assert record["step_time_s"] == pytest.approx(chosen["step_time_s"], rel=1e-6)
    assert record["train_days"] == pytest.approx(chosen["days"], rel=0.005)
    assert record["train_usd"] == pytest.approx(chosen["usd"], rel=0.005)


def test_a_small_question_gets_a_small_machine():
    chosen = json.loads(run("--model", "llama3-8b", "--tokens", "100M", "--json", of=advise_command).stdout)["chosen"]
    assert chosen["nodes"] <= 2
    assert chosen["days"] > 900 / 86_400  # start-up counts


def test_a_deadline_is_met_by_the_upper_end_of_the_interval():
    words = ["--model", "llama3-8b", "--tokens", "1T", "--deadline", "20d", "--instances", "p5", "--json"]
    chosen = json.loads(run(*words, of=advise_command).stdout)["chosen"]
    assert chosen["days"] < chosen["latest_days"] <= 20


def test_a_mixture_of_experts_is_advised_without_a_spec(tmp_path: Path):
    words = ["--model", "mixtral-8x7b", "--tokens", "100B", "--instances", "p5", "--nodes", "16"]
    record = json.loads(run(*words, "--json", of=advise_command).stdout)
    assert record["spec"] is None
    with pytest.raises(UserError, match="mixture of experts"):
        CliRunner().invoke(advise_command, [*words, "--spec", str(tmp_path / "s.yaml")], catch_exceptions=False)


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


@pytest.mark.parametrize("platform", ["parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks"])
def test_the_advised_spec_of_a_platform_has_no_errors(platform: str, tmp_path: Path) -> None:
    from trainwright.check.gate import require_clean
    from trainwright.spec.load import load

    path = tmp_path / "spec.yaml"
    words = ["--model", "llama3-8b", "--tokens", "10B", "--instances", "p5", "--nodes", "8", "--platform", platform]
    run(*words, "--capacity", "on-demand,capacity-block,spot", "--spec", str(path), of=advise_command)
    loaded = load(path)
    require_clean(loaded)
    assert loaded.spec.platform == platform


def test_advise_names_the_platforms_it_writes() -> None:
    words = ["--model", "llama3-8b", "--tokens", "1B", "--platform", "hyperpods"]
    with pytest.raises(UserError, match="no spec is written for platform 'hyperpods'") as caught:
        CliRunner().invoke(advise_command, words, catch_exceptions=False)
    assert "hyperpod" in caught.value.fix
