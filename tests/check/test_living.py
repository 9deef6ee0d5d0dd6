"""Settings, baselines, changed lines, caches and processes: `check` as a team uses it every day."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.check.config import Config, load_config
from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.check.known import changed_lines, fingerprint
from trainwright.check.runner import RunOptions, run
from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.spec.source import Span

BAD = "#!/bin/bash\ntorchrun --nproc_per_nodes=8 train.py\n"
LATEST = "FROM pytorch/pytorch:latest\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "run.sh").write_text(BAD)
    (tmp_path / "Dockerfile").write_text(LATEST)
    return tmp_path


def called(*words: str) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(cli, ["check", *words])
    if isinstance(outcome.exception, UserError):  # `main` prints it and exits with 2
        return 2, outcome.stdout, f"{outcome.exception} {outcome.exception.fix}"
    return outcome.exit_code, outcome.stdout, outcome.stderr


def codes(*words: str) -> list[str]:
    return [row["code"] for row in json.loads(called(*words, "--format", "json")[1])]


def test_settings_of_pyproject(project: Path) -> None:
    assert codes(".") == ["IMG003", "JOB013"]
    file = project / "pyproject.toml"
    file.write_text('[tool.trainwright.check]\nignore = ["IMG"]\n')
    assert codes(".") == ["JOB013"]
    file.write_text('[tool.trainwright.check]\nexclude = ["jobs"]\n')
    assert codes(".") == ["IMG003"]
    file.write_text('[tool.trainwright.check.per-file-ignores]\n"jobs/*.sh" = ["JOB013"]\n')
    assert codes(".") == ["IMG003"]
    file.write_text('[tool.trainwright.check.levels]\nJOB013 = "info"\nIMG = "info"\n')
    assert called(".")[0] == 0
    file.write_text("[tool.trainwright.check]\nignores = []\n")
    with pytest.raises(UserError, match="unknown setting 'ignores'") as caught:
        load_config()
    assert "ignore" in caught.value.fix
    assert called(".")[0] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[check.levels]\nIMX = "info"\n', "levels: no rule starts with 'IMX'"),
        ('[check.per-file-ignores]\n"a/*" = ["JOB99"]\n', "per-file-ignores.'a/*': no rule starts with 'JOB99'"),
        ('[check.targets]\nparallelclusters = "3.13"\n', "no rule asks for the version of 'parallelclusters'"),
        ('[check.targets]\nparallelcluster = "9.9"\n', "'9.9' is no known version of parallelcluster"),
        ('[check.targets]\nparallelcluster = "3.13.latest"\n', "'3.13.latest' is no known version"),
    ],
)
def test_settings_that_mean_nothing_are_refused(project: Path, settings: str, message: str) -> None:
    (project / "trainwright.toml").write_text(settings)
    code, _, errors = called(".")
    assert code == 2
    assert message in errors


def test_names_of_files_with_control_characters(project: Path) -> None:
    (project / "a\n\x1b[31mb.sh").write_text(BAD.replace("train.py", "\x1b[0mtrain.py"))
    text = called("a\n\x1b[31mb.sh")[1]
    assert "a\\n\\x1b[31mb.sh:2:" in text
    assert "\x1b" not in text
    assert "file=a%0A\\x1b[31mb.sh,line=2" in called("a\n\x1b[31mb.sh", "--format", "github")[1]


def test_settings_are_looked_for_upwards_and_trainwright_toml_comes_first(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.trainwright.check]\nignore = ["IMG"]\n')
    (project / "trainwright.toml").write_text('[check]\nignore = ["JOB"]\n[check.targets]\nparallelcluster = "3.9"\n')
    config = load_config(project / "jobs")
    assert config.ignore == ("JOB",)
    assert config.targets == (("parallelcluster", "3.9"),)
    assert config.folder == project


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [("*.sh", "a/b.sh", True), ("a", "a/b.sh", True), ("a/*.sh", "a/b.sh", True), ("b", "a/b.sh", False),
     ("a/", "a/c/d.sh", True), ("c", "a/c/d.sh", True)],
)  # fmt: skip
def test_patterns(tmp_path: Path, pattern: str, path: str, matched: bool) -> None:
    assert Config(tmp_path).matches(str(tmp_path / path), pattern) is matched


def test_a_target_version_decides_which_keys_exist(project: Path) -> None:
    text = "Image: {Os: ubuntu2404}\n"
    text += "HeadNode: {InstanceType: m5.large, Networking: {SubnetId: subnet-0a1b2c3d4e5f67890}}\n"
    text += "Scheduling: {Scheduler: slurm, SlurmQueues: []}\n"
    (project / "cluster.yaml").write_text(text)
    assert codes("cluster.yaml", "--select", "CFG005") == []
    (project / "trainwright.toml").write_text('[check.targets]\nparallelcluster = "3.9"\n')
    assert codes("cluster.yaml", "--select", "CFG005") == ["CFG005"]


def test_a_baseline_hides_what_was_there_before_lines_moved(project: Path) -> None:
    assert called(".", "--write-baseline", "base.json")[0] == 0
    assert codes(".", "--baseline", "base.json") == []
    (project / "jobs" / "run.sh").write_text("#!/bin/bash\n# a comment\n" + BAD.split("\n", 1)[1] * 2)
    assert codes(".", "--baseline", "base.json") == ["JOB013"]  # the second of the two is new
    code, _, errors = called(".", "--baseline", "absent.json")
    assert code == 2
    assert "--write-baseline" in errors


def test_a_baseline_holds_wherever_check_is_called(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called(".", "--write-baseline", "base.json")
    monkeypatch.chdir(project / "jobs")
    assert codes("..", "--baseline", "../base.json") == []
    assert codes(str(project), "--baseline", str(project / "base.json")) == []


def test_a_baseline_of_the_first_version_is_read(project: Path) -> None:
    (project / "ci").mkdir()
    result = check(["."])
    marks = {fingerprint(finding, result.text_of(finding.file)): 1 for finding in result.findings}
    (project / "ci" / "base.json").write_text(json.dumps({"version": 1, "findings": marks}))
    assert codes(".", "--baseline", "ci/base.json") == []


def git(*words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_only_changed_lines_are_reported(project: Path) -> None:
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-qm", "one")
    assert codes(".", "--diff", "HEAD") == []
    (project / "jobs" / "run.sh").write_text(BAD + "torchrun --rdzv_backends=c10d other.py\n")
    (project / "jobs" / "new.sh").write_text(BAD)
    rows = json.loads(called(".", "--diff", "HEAD", "--format", "json")[1])
    assert [(Path(row["file"]).name, row["line"]) for row in rows] == [("new.sh", 2), ("run.sh", 3)]
    assert changed_lines("HEAD")[os.path.realpath("jobs/run.sh")] == {3}
    code, _, errors = called(".", "--diff", "nosuch")
    assert code == 2
    assert "nosuch" in errors


def test_statistics_count_by_rule(project: Path) -> None:
    rows = json.loads(called(".", "--statistics", "--format", "json")[1])
    assert [(row["code"], row["count"]) for row in rows] == [("IMG003", 1), ("JOB013", 1)]
    assert "JOB013" in called(".", "--statistics")[1]


def test_links_to_pages_are_absolute_where_the_address_is_set(project: Path) -> None:
    (project / "trainwright.toml").write_text('[check]\ndocs-url = "https://docs.example.com/tw"\n')
    [row] = json.loads(called("jobs", "--format", "json")[1])
    assert row["url"] == "https://docs.example.com/tw/rules/JOB013/"
    driver = json.loads(called("jobs", "--format", "sarif")[1])["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == "https://docs.example.com/tw"
    assert driver["rules"][0]["helpUri"] == row["url"]


def test_sarif_is_complete_without_links(project: Path) -> None:
    (project / "jobs" / "run.sh").write_text(BAD + "true  # trainwright: ignore\n")
    driver = json.loads(called("jobs", "--format", "sarif")[1])["runs"][0]["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == ["JOB013", "TW004"]
    assert all("Why:" in rule["help"]["text"] and "helpUri" not in rule for rule in driver["rules"])
    assert "Use instead:" in driver["rules"][0]["help"]["markdown"]


def test_gitlab_report(project: Path) -> None:
    rows = json.loads(called(".", "--format", "gitlab")[1])
    assert [row["check_name"] for row in rows] == ["IMG003", "JOB013"]
    assert rows[1]["location"] == {"path": "jobs/run.sh", "lines": {"begin": 2}}
    assert len({row["fingerprint"] for row in rows}) == 2


def test_fixes_are_shown_as_a_diff_and_unsafe_ones_asked_for(project: Path) -> None:
    _, _, errors = called("jobs/run.sh", "--fix")
    assert errors == ""
    assert (project / "jobs" / "run.sh").read_text() == BAD
    code, _, errors = called("jobs/run.sh", "--unsafe-fixes", "--select", "JOB013")
    assert code == 0
    assert "-torchrun --nproc_per_nodes=8 train.py" in errors
    assert "+torchrun --nproc-per-node=8 train.py" in errors or "+torchrun --nproc_per_node=8 train.py" in errors


def test_ignore_comments_need_a_code_that_exists(project: Path) -> None:
    run_file = project / "jobs" / "run.sh"
    run_file.write_text(BAD.replace("train.py\n", "train.py  # trainwright: ignore\n"))
    assert codes("jobs/run.sh") == ["JOB013", "TW004"]
    run_file.write_text(BAD.replace("train.py\n", "train.py  # trainwright: ignore[JOB113]\n"))
    rows = json.loads(called("jobs/run.sh", "--format", "json")[1])
    assert [(row["code"], row["fix"]) for row in rows] == [
        ("JOB013", rows[0]["fix"]),
        ("TW004", "did you mean 'JOB013'?"),
    ]
    for code in ("JOB013", "JOB"):
        run_file.write_text(BAD.replace("train.py\n", f"train.py  # trainwright: ignore[{code}] why\n"))
        assert codes("jobs/run.sh") == []
    two = "true  # trainwright: ignore[JOX001]\ntrue  # trainwright: ignore[ENVX]\n"
    run_file.write_text("#!/bin/bash\n" + two)
    rows = json.loads(called("jobs/run.sh", "--format", "json")[1])
    assert [(row["message"], row["also"]) for row in rows] == [("no rule 'JOX001'", []), ("no rule 'ENVX'", [])]


def test_the_summary_counts_the_rules_that_ran(project: Path) -> None:
    assert "· 1 rule ·" in called("jobs/run.sh", "--select", "JOB013")[1].replace("\n", " ·")


def test_hooks_pass_files_of_any_kind(project: Path) -> None:
    (project / "notes.yaml").write_text("a: 1\n")
    assert called("notes.yaml")[0] == 2
    assert called("notes.yaml", "--skip-unknown")[0] == 0
    assert codes("notes.yaml", "Dockerfile", "--skip-unknown") == ["IMG003"]


def row(finding: Finding) -> tuple[str, str, Span, str]:
    return finding.code, finding.file, finding.span, finding.message


def test_files_under_other_names_are_read(project: Path) -> None:
    (project / "jobs" / "run.sh").rename(project / "jobs" / "run.job")
    (project / "Dockerfile").rename(project / "08_Dockerfile")
    assert codes(".") == ["IMG003", "JOB013"]
    (project / "11_slurm.conf").write_text("ClusterName=ml\nNodeName=a[1-2] CPUs=4\nPartitionName=p Nodes=a[1-4]\n")
    assert "SLU004" in codes("11_slurm.conf")


def test_a_link_to_nothing_is_called_so(project: Path) -> None:
    (project / "link.sh").symlink_to("gone.sh")
    code, _, errors = called("link.sh")
    assert code == 2
    assert "link.sh is a link to gone.sh, which does not exist" in errors
    assert "did you mean" not in errors


def test_cache_and_processes_change_nothing(project: Path) -> None:
    for number in range(220):
        (project / "jobs" / f"{number}.sh").write_text(BAD if number % 3 else "#!/bin/bash\ntrue\n")
    plain = check(["."], Selection())
    for _ in range(2):
        fast = run(["."], Selection(), {}, Config(project), RunOptions(jobs=2, cache=True))
        assert [row(f) for f in fast.findings] == [row(f) for f in plain.findings]
        assert fast.files == plain.files
        assert {f.file: fast.text_of(f.file) for f in fast.findings} == plain.texts


def test_a_changed_neighbour_makes_the_cache_forget(project: Path) -> None:
    options = RunOptions(cache=True)
    assert [f.code for f in run(["jobs"], Selection(), {}, Config(project), options).findings] == ["JOB013"]
    script = project / "jobs" / "train.py"
    script.write_text("import argparse\np = argparse.ArgumentParser()\np.add_argument('--a')\np.parse_args()\n")
    (project / "jobs" / "run.sh").write_text(BAD.replace("_nodes", "_node").replace("train.py", "train.py --b"))
    assert [f.code for f in run(["jobs"], Selection(), {}, Config(project), options).findings] == ["JOB013"]
    script.write_text(script.read_text().replace("--a", "--b"))
    assert run(["jobs"], Selection(), {}, Config(project), options).findings == []


def test_a_directory_that_a_finding_asked_for_makes_the_cache_forget(project: Path) -> None:
    (project / "jobs" / "run.sh").write_text("#!/bin/bash\n#SBATCH --output=logs/%j.out\nsrun python train.py\n")
    options = RunOptions(cache=True)
    assert [f.code for f in run(["jobs"], Selection(), {}, Config(project), options).findings] == ["SHL001"]
    (project / "jobs" / "logs").mkdir()
    assert run(["jobs"], Selection(), {}, Config(project), options).findings == []


def test_a_configuration_in_another_folder_makes_the_cache_forget(project: Path) -> None:
    (project / "jobs" / "configs").mkdir()
    config = project / "jobs" / "configs" / "ds.json"
    batch = '"train_batch_size": 20, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1'
    config.write_text(f'{{{batch}, "zero_optimization": {{"stage": 2}}}}')
    launch = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
    launch += "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HOST:29500 train.py "
    (project / "jobs" / "run.sh").write_text(launch + "--deepspeed configs/ds.json\n")
    options = RunOptions(cache=True)
    assert run(["jobs/run.sh"], Selection(("JOB016",)), {}, Config(project), options).findings
    config.write_text(config.read_text().replace("20", "16"))
    assert not run(["jobs/run.sh"], Selection(("JOB016",)), {}, Config(project), options).findings


def test_many_findings_are_grouped(project: Path) -> None:
    (project / "jobs" / "run.sh").unlink()
    for number in range(60):
        (project / "jobs" / f"{number}.sh").write_text(f"#!/bin/bash\ntorchrun --nproc_per_nodes{number}=8 a.py\n")
    _, output, _ = called("jobs")
    lines = output.splitlines()
    assert lines[0] == "jobs/0.sh"
    assert any("60  error   JOB013" in line for line in lines)
    assert called("jobs", "--format", "full")[1].count("╰─") == 60


def test_the_hook_definition_names_our_command() -> None:
    import yaml

    [hook] = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"].split()[:2] == ["trainwright", "check"]
