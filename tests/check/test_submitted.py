"""`check --set` and `--job` see what `submit` would; SARIF has absolute help and escaped paths; the definitions for
GitHub, GitLab and pre-commit are there and true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.check import command
from trainwright.errors import UserError

ROOT = Path(__file__).parents[2]
SPEC = """name: train
platform: parallelcluster
region: us-east-2
queues: [{name: p5, instance: p5.48xlarge, count: {min: 0, max: 2}}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 500}}]
jobs:
  - {name: small, recipe: llama3.1-8b, nodes: 2}
  - {name: large, recipe: llama3.1-8b, nodes: 9}
"""


def codes(*arguments: str) -> list[str]:
    result = CliRunner().invoke(command, [*arguments, "--format", "json"], catch_exceptions=False)
    return [f"{row['code']} {row['line']}" for row in json.loads(result.stdout)]


def test_one_job_and_changed_values(tmp_path: Path) -> None:
    spec = tmp_path / "cluster.yaml"
    spec.write_text(SPEC)
    assert "SPC003 8" in codes(str(spec))
    assert "SPC003 8" not in codes(str(spec), "--job", "small")
    assert "SPC003 8" in codes(str(spec), "--job", "large")
    assert "SPC003 8" not in codes(str(spec), "--job", "large", "--set", "jobs.large.nodes=2")
    with pytest.raises(UserError, match="no job 'tiny'"):
        codes(str(spec), "--job", "tiny")


def test_sarif_has_absolute_help_and_escaped_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my jobs #1").mkdir()
    (tmp_path / "my jobs #1" / "a.sh").write_text('DIR=/fsx/a\nls "${DIR}}"\n')
    (tmp_path / "trainwright.toml").write_text('[check]\ndocs-url = "https://docs.example.com/tw/"\n')
    result = CliRunner().invoke(command, ["my jobs #1/a.sh", "--format", "sarif"], catch_exceptions=False)
    [run] = json.loads(result.stdout)["runs"]
    assert run["tool"]["driver"]["rules"][0]["helpUri"] == "https://docs.example.com/tw/rules/SHL001/"
    [place] = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "my%20jobs%20%231/a.sh"
    (tmp_path / "trainwright.toml").write_text('[check]\ndocs-url = "docs/"\n')
    with pytest.raises(UserError, match="not an absolute address"):
        CliRunner().invoke(command, ["my jobs #1/a.sh"], catch_exceptions=False)


def test_the_hook_takes_every_kind_of_file_that_check_reads() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    pattern = re.compile(hook["files"])
    names = [
        "a.yaml",
        "a.json",
        "a.sbatch",
        "Dockerfile.gpu",
        "main.tf",
        "llama.toml",
        "slurm.conf",
        "train.py",
        "a.j2",
    ]
    assert [name for name in names if not pattern.search(name)] == []
    assert "types_or" not in hook  # pre-commit has no type for sbatch files; the pattern decides


def test_the_commands_of_action_and_hook_run(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text('DIR=/fsx/a\nls "${DIR}}"\n')
    (tmp_path / "notes.txt").write_text("nothing\n")
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    action = next(step["run"] for step in steps if "trainwright check" in step.get("run", ""))
    main = [sys.executable, "-c", "from trainwright.cli.main import main; main()"]
    words = hook["entry"].split()[1:]
    done = subprocess.run([*main, *words, "a.sh", "notes.txt"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "SHL001" in done.stdout) == (1, True)
    words = [word for word in action.split()[1:] if not word.startswith("$")]
    done = subprocess.run([*main, *words, "a.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("::warning file=a.sh,line=2")) == (1, True)


def test_the_gitlab_job_of_the_docs_is_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/check.md").read_text(), re.DOTALL)
    [job] = [yaml.safe_load(block)["trainwright"] for block in blocks if block.startswith("trainwright:")]
    assert any("--format gitlab" in line for line in job["script"])
    assert job["artifacts"]["reports"]["codequality"] == "gl-code-quality.json"
