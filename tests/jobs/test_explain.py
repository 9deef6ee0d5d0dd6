"""Every value of a job is shown with its origin, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from resolving import resolved
from trainwright.cli.main import cli
from trainwright.jobs.environment import explain_environment
from trainwright.jobs.explain import rows

SPEC = {
    "name": "c",
    "platform": "parallelcluster",
    "region": "us-east-2",
    "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2}],
    "storage": [{"mount": "/fsx", "lustre": {}}],
    "jobs": [{"name": "j", "recipe": "llama3-8b", "time": "2h", "steps": 7}],
}


def table(job: dict[str, object]) -> dict[str, tuple[str, str]]:
    return {name: (value, origin) for name, value, origin in rows(resolved(job, 8, "p5.48xlarge"))}


def test_the_optimizer_the_launcher_and_limits_are_listed() -> None:
    values = table({"recipe": "llama3-8b", "time": "2h", "container": "a/b:1", "mounts": ["/fsx"]})
    assert {"min_lr", "weight_decay", "beta1", "beta2", "clip"} <= values.keys()
    assert values["weight_decay"] == ("0.1", "recipe llama3-8b")
    assert values["launcher"] == ("srun", "default: one Slurm task per rank")
    assert values["time"][0] == "2h"
    assert values["mounts"][0] == "/fsx"
    assert values["container"] == ("a/b:1", values["container"][1])
    assert values["container"][1].startswith("spec.yaml:")


def test_an_argument_of_the_trainer_is_the_origin_of_what_it_changes() -> None:
    values = table({"recipe": "llama3-8b", "args": ["--clip", "0.5"]})
    assert values["clip"][0] == "0.5"
    assert "the trainer's argument --clip wins" in values["clip"][1]


def test_without_a_recipe_the_trainers_own_optimizer_is_shown() -> None:
    values = table({"model": "llama3-8b"})
    assert values["lr"] == ("0.0003", "default: the trainer's own")


def test_durations_are_shown_as_a_spec_writes_them() -> None:
    shown = [value for name, (value, _) in table({"recipe": "llama3-8b", "checkpoint": {"every": "15min"}}).items()
             if name.startswith("checkpoint")]  # fmt: skip
    assert any("15min" in value for value in shown)
    assert not any("900" in value for value in shown)


def test_a_value_of_several_lines_stays_in_its_row() -> None:
    job = resolved({"script": "train.py", "env": {"NOTE": "one\ntwo"}}, 1)
    [line] = [line for line in explain_environment(job.environment).splitlines() if "NOTE" in line]
    assert line.startswith("NOTE=one\\ntwo ")


def test_a_dry_run_as_json_has_values_script_findings_and_prediction(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    for flag in ("--dry-run", "--explain"):
        done = CliRunner().invoke(cli, ["submit", str(tmp_path / "spec.yaml"), "--host", "head", flag, "--json"])
        assert done.exit_code == 0, done.output
        shown = json.loads(done.stdout)
        assert shown["resolved"]["values"]["steps"]["value"] == "7"
        assert shown["script"].startswith("#!/bin/bash")
        assert isinstance(shown["findings"], list)
        assert shown["prediction"]["tokens_per_s"] > 0
