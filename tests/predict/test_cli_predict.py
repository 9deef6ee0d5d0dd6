"""`trainwright predict`: tables, JSON, explanations, pictures, comparisons, rows, specs, and bad input."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from predict_commands import ISSUE, run

from trainwright.cli.predict import command as predict_command
from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.predict.evidence import SCALES
from trainwright.spec.starters import starters

DATA = Path(__file__).parents[2] / "benchmarks" / "data"

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
