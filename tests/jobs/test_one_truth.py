"""The rows that once had a different answer from every verb: one answer each, from all of them, through the command
line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from trainwright.check.gate import CheckFailed
from trainwright.cli.main import cli
from trainwright.errors import UserError

QUEUE = {"name": "train", "instance": "p5.48xlarge", "count": 2}
JOB = {"name": "pretrain", "recipe": "llama3-8b"}
SPEC: dict[str, Any] = {
    "name": "one", "platform": "parallelcluster", "region": "us-east-2", "queues": [QUEUE],
    "storage": [{"mount": "/fsx", "lustre": {}}], "jobs": [JOB],
}  # fmt: skip
VERBS = {"plan": ["-o", "plan"], "predict": [], "submit": ["--host", "head", "--dry-run"]}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def verb(spec: dict[str, Any], name: str, *more: str) -> Result:
        Path("spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
        return CliRunner().invoke(cli, [name, "spec.yaml", *more])

    return verb


MISTAKES = {
    "queue": ({"jobs": [{**JOB, "queue": "nosuch"}]}, "asks for queue 'nosuch'"),
    "more nodes than the queue": ({"jobs": [{**JOB, "nodes": 9}]}, "asks for 9 nodes, and queue 'train' has at most 2"),
    "a node of an empty queue": (
        {"queues": [{**QUEUE, "count": 0}], "jobs": [{**JOB, "nodes": 1}]},
        "asks for 1 node, and queue 'train' has at most 0",
    ),
    "nodes on ParallelCluster": ({"queues": [{**QUEUE, "nodes": 2}]}, "cannot honour `nodes`"),
    "lone subnet": ({"network": {"public_subnet": "subnet-0a1b2c3d4e5f67890"}}, "but not private_subnet"),
    "more_zones without zone": ({"network": {"more_zones": ["use2-az1"]}}, "`more_zones` adds to `zone`"),
    "ep": ({"jobs": [{**JOB, "parallel": {"ep": 2}}]}, "ep=2 spreads experts, but llama3-8b has none"),
    "os": ({"software": {"os": "alinux2"}}, "has no 'alinux2'"),
    "region": ({"region": "mars-1"}, "no region 'mars-1'"),
    "ssh_from": ({"head": {"key": "k", "ssh_from": "not-a-cidr"}}, "is no range of addresses"),
    "scratch-1 with a bucket": (
        {
            "storage": [
                {"mount": "/fsx", "lustre": {"deployment": "scratch-1", "capacity": "1.2TiB"}, "bucket": "s3://b"}
            ]
        },
        "cannot be linked both ways",
    ),
    "trainer option": ({"jobs": [{**JOB, "args": ["--stepz", "5"]}]}, "no option '--stepz'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_answer(name: str, run: Any) -> None:
    changes, said = MISTAKES[name]
    spec = {**SPEC, **changes}
    checked = run(spec, "check", "--format", "json")
    errors = [f for f in json.loads(checked.stdout) if f["level"] == "error"]
    assert checked.exit_code == 1
    assert [f for f in errors if said in f["message"]], errors
    for verb, more in VERBS.items():
        done = run(spec, verb, *more)
        assert isinstance(done.exception, CheckFailed), f"{verb}: {done.output}"
        told = {(f.code, f.span.line, f.span.column) for f in done.exception.result.findings if f.level == "error"}
        assert told == {(f["code"], f["line"], f["column"]) for f in errors}, verb
        assert done.exception.status == 1


def test_processes_are_counted_by_every_verb(run: Any) -> None:
    spec = {**SPEC, "jobs": [{**JOB, "processes": 4, "nodes": 1}]}
    predicted = json.loads(run(spec, "predict", "--json").stdout)
    assert (predicted["gpus"], predicted["plan"]) == (4, "shard=4")
    submitted = run(spec, "submit", "--host", "head", "--dry-run")
    assert "--parallel shard=4" in submitted.stdout
    assert f"{predicted['tokens_per_s']:,.0f} tokens/s" in submitted.stderr


def test_two_jobs_need_a_name_from_every_verb(run: Any) -> None:
    spec = {**SPEC, "jobs": [JOB, {**JOB, "name": "again"}]}
    for verb in ("predict", "submit"):
        done = run(spec, verb)
        assert isinstance(done.exception, UserError), done.output
        assert done.exception.what == "spec 'one' has 2 jobs"
        assert done.exception.fix == "name one of pretrain, again"


def test_a_calibration_counts_for_every_verb(run: Any, tmp_path: Path) -> None:
    before = json.loads(run(SPEC, "predict", "--json").stdout)["tokens_per_s"]
    settings = tmp_path / "config" / "trainwright" / "predict.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"matmul_sustained_hopper": 0.5}))
    after = json.loads(run(SPEC, "predict", "--json").stdout)["tokens_per_s"]
    assert after < before
    assert f"{after:,.0f} tokens/s" in run(SPEC, "submit", "--host", "head", "--dry-run").stderr


def test_health_is_run_by_a_module_that_exists(run: Any) -> None:
    import importlib.util

    done = run({**SPEC, "jobs": [{**JOB, "health": True}]}, "submit", "--host", "head", "--dry-run")
    assert "python3 -m trainwright.health" in done.stdout
    assert importlib.util.find_spec("trainwright.health.__main__") is not None


def test_every_finding_is_printed_by_the_verb_that_stops(tmp_path: Path) -> None:
    import subprocess
    import sys

    spec = {**SPEC, "region": "mars-1", "software": {"os": "alinux2"}, "jobs": [{**JOB, "queue": "nosuch"}]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = subprocess.run(
        [sys.executable, "-m", "trainwright", "plan", "spec.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert all(code in done.stderr for code in ("SPC001", "SPC002", "SPC007")), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "one.plan").exists()


def test_what_a_base_file_brings_in_has_one_place(run: Any, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "# a\n# b\nregion: mars-1\njobs: [{name: pretrain, recipe: llama3-8b, nodes: 9}]\n"
    )
    spec = {key: value for key, value in SPEC.items() if key not in ("region", "jobs")} | {"extends": "base.yaml"}
    checked = json.loads(run(spec, "check", "--format", "json").stdout)
    expected = {(f["code"], Path(f["file"]).name, f["line"]) for f in checked if f["level"] == "error"}
    assert expected == {("SPC007", "base.yaml", 3), ("SPC003", "base.yaml", 4)}
    for verb, more in VERBS.items():
        done = run(spec, verb, *more)
        assert isinstance(done.exception, CheckFailed), f"{verb}: {done.output}"
        found = [f for f in done.exception.result.findings if f.level == "error"]
        assert {(f.code, Path(f.file).name, f.span.line) for f in found} == expected, verb


@pytest.mark.parametrize(
    "words", [["--help"], ["--sequence", "-5"], ["--micro-batch", "-2"], ["--batch", "-16"], ["--parallel", "ep=2"],
              ["--checkpoint-every", "banana"], ["--config", "nope.json"], ["--model", "nosuch"], ["--batch", "17"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_argument_is_found_where_it_stands(words: list[str], run: Any) -> None:
    spec = {**SPEC, "jobs": [{**JOB, "args": words}]}
    checked = [f for f in json.loads(run(spec, "check", "--format", "json").stdout) if f["level"] == "error"]
    assert len(checked) == 1, checked
    text = yaml.safe_dump(spec, sort_keys=False).splitlines()
    assert text[checked[0]["line"] - 1].strip().startswith(("args:", "-")), text[checked[0]["line"] - 1]
    assert isinstance(run(spec, "predict").exception, CheckFailed)


def test_a_job_that_states_one_value_keeps_the_recipes_others(run: Any) -> None:
    job = {**JOB, "batch": {"micro_batch": 2}, "checkpoint": {"to": "/fsx/ck"}}
    done = run({**SPEC, "jobs": [job]}, "submit", "--host", "head", "--dry-run")
    assert "--batch 512 " in done.stdout
    assert "--micro-batch 2" in done.stdout
    assert "--checkpoint-every 900s" in done.stdout
    assert "--keep-last 3" in done.stdout
    assert "--checkpoint-to /fsx/ck" in done.stdout


POD = {**SPEC, "platform": "eks", "jobs": [{**JOB, "container": "example.com/t:1"}]}
IMAGES = {
    "a secret without its key": ({"secrets": {"TOKEN": "hf"}}, "is not NAME/KEY"),
    "a TrainJob that must not restart": ({"kind": "trainjob", "requeue": False}, "set by its runtime"),
    "no image": ({"container": None}, "runs images, and job 'pretrain' names none"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_what_a_job_in_an_image_lacks_is_found_by_check_and_submit(name: str, run: Any) -> None:
    changes, said = IMAGES[name]
    job = {key: value for key, value in {**POD["jobs"][0], **changes}.items() if value is not None}
    spec = {**POD, "jobs": [job]}
    errors = [f for f in json.loads(run(spec, "check", "--format", "json").stdout) if f["level"] == "error"]
    assert [f["code"] for f in errors] == ["SPC004"]
    assert said in errors[0]["message"]
    refused = run(spec, "submit", "--dry-run").exception
    assert isinstance(refused, CheckFailed)
    assert said in refused.what


@pytest.mark.parametrize("changes", [{"env": {"A": "x\0y"}}, {"mounts": ["/a\nb"]}], ids=["NUL", "line break"])
def test_a_text_that_would_leave_its_line_is_found_by_check(changes: dict[str, Any], run: Any) -> None:
    spec = {**SPEC, "jobs": [{**JOB, **changes}]}
    errors = [f for f in json.loads(run(spec, "check", "--format", "json").stdout) if f["level"] == "error"]
    assert [f["code"] for f in errors] == ["TW002"]
    assert isinstance(run(spec, "submit", "--host", "head", "--dry-run").exception, UserError)
