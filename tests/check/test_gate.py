"""`check` as a gate of a pipeline: what it did not read, was not asked or could not do is never reported as clean."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli

WRONG_SBATCH = "#!/bin/bash\n#SBATCH --nodes=4\nsrun torchrun --nnodes=2 --nproc_per_node=8 train.py\n"


def run(*words: str, stdin: str | None = None) -> tuple[int, str]:
    """Exit status and output; an exception that would be a traceback is raised here."""
    outcome = CliRunner().invoke(cli, ["check", *words], input=stdin)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        from trainwright.errors import UserError

        if not isinstance(outcome.exception, UserError):
            raise outcome.exception
        return outcome.exception.status, str(outcome.exception)
    return outcome.exit_code, outcome.output


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with one commit and, since then, one changed file with a mistake."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.sbatch").write_text("#!/bin/bash\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    (folder / "train.sbatch").write_text(WRONG_SBATCH)
    return folder


@pytest.mark.parametrize("revision", ["--output=../precious", "-O../precious", "HEAD...--output=../precious", "nope"])
def test_a_revision_is_never_an_option_of_git(repository: Path, revision: str) -> None:
    precious = repository.parent / "precious"
    precious.write_text("keep me")
    code, _ = run(".", "--diff", revision)
    assert (code, precious.read_text()) == (2, "keep me")


@pytest.mark.parametrize("revision", ["HEAD", "HEAD...", "HEAD..HEAD"])
def test_a_revision_or_two_are_accepted(repository: Path, revision: str) -> None:
    code, output = run(".", "--diff", revision)
    assert code == (1 if revision == "HEAD" else 0), output


def test_a_change_that_makes_another_line_wrong_is_reported(repository: Path) -> None:
    """The request for GPUs changes, and the number of processes that exceeds it stays as it was."""
    job = repository / "train.sbatch"
    before = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:2\ntorchrun --nproc_per_node=2 train.py\n"
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    job.write_text(before)
    subprocess.run(["git", *author, "commit", "-qam", "right"], check=True, capture_output=True)
    assert run(".", "--diff", "HEAD")[0] == 0
    job.write_text(before.replace("gpu:2", "gpu:1"))
    code, output = run(".", "--diff", "HEAD")
    assert (code, "JOB001" in output) == (1, True)
    subprocess.run(["git", *author, "commit", "-qam", "wrong"], check=True, capture_output=True)
    job.write_text(before.replace("gpu:2", "gpu:1") + "echo end\n")
    assert run(".", "--diff", "HEAD")[0] == 0
    assert run(".", "--diff", "HEAD~1")[0] == 1
    assert run(".", "--diff", "HEAD~1...HEAD")[0] == 1


def test_the_users_own_git_configuration_hides_nothing(repository: Path) -> None:
    for key in ("diff.noprefix", "diff.relative"):
        subprocess.run(["git", "config", key, "true"], check=True)
    assert run(".", "--diff", "HEAD")[0] == 1


BROKEN = {
    "cluster.yaml": b"Scheduling:\n\tSlurmQueues: []\n",
    "ds_config.json": b'{"train_batch_size": 8,, "zero_optimization": {}}',
    "twice.yaml": b"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nkind: Job\n",
    "nul.sbatch": b"#!/bin/bash\n#SBATCH --nodes=2\0\n",
    "wide.yaml": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n".encode("utf-16"),
    "latin.yaml": b"apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig # caf\xe9\n",
    "queue.yaml": b"Scheduling: {Scheduler: slurm, SlurmQueues: [}\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_job_or_cluster_file_that_cannot_be_parsed_is_not_clean(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(BROKEN[name])
    (tmp_path / "good.sh").write_text("#!/bin/bash\necho\n")
    code, output = run(str(tmp_path), "--no-cache")
    assert code == 1
    assert "warning TW001" in output
    assert "no mistakes found" not in output


def test_every_format_reports_what_was_not_parsed_and_a_baseline_records_it(tmp_path: Path) -> None:
    for name, data in BROKEN.items():
        (tmp_path / name).write_bytes(data)
    for form in ("json", "github", "gitlab", "sarif"):
        code, output = run(str(tmp_path), "--format", form)
        assert (code, all(name in output for name in BROKEN)) == (1, True), form
    baseline = str(tmp_path / "baseline.json")
    run(str(tmp_path), "--write-baseline", baseline, "--no-cache")
    for cache in ("--cache", "--cache", "--no-cache"):
        assert run(str(tmp_path), "--baseline", baseline, cache)[0] == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.yaml", "Scheduling: ["),
        ("web.yaml", "apiVersion: v1\nkind: Service\nkind: Pod\n"),
        ("job.yaml", "apiVersion: v1\nkind: PyTorchJob\n{{ if }}\n  a: [\n"),
        ("cluster.yaml.j2", "Scheduling:\n\tSlurmQueues: []\n"),
    ],
)
def test_other_files_and_templates_are_only_listed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    code, output = run(str(tmp_path), "--no-cache")
    assert (code, "could not be parsed" in output) == (0, True), output


def test_a_script_of_another_encoding_is_checked_and_fixed_byte_for_byte(tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(WRONG_SBATCH)
    plain = json.loads(run(str(tmp_path), "--format", "json", "--no-cache")[1])
    script.write_bytes(WRONG_SBATCH.encode() + b"pip install a>=1\n# caf\xe9\n")
    latin = json.loads(run(str(tmp_path), "--format", "json", "--no-cache")[1])
    assert plain
    assert all(row in latin for row in plain)
    assert "TW001" not in {row["code"] for row in latin}
    run(str(script), "--fix")
    assert script.read_bytes().endswith(b"pip install 'a>=1'\n# caf\xe9\n")
    script.write_bytes(WRONG_SBATCH.encode() + b"pip install a>=1 # caf\xe9\n")
    run(str(script), "--fix")
    assert script.read_bytes().endswith(b"a>=1 # caf\xe9\n"), "an edit of a byte that is not known is not made"


@pytest.mark.parametrize("name", ["missing/folder/baseline.json", "."])
def test_a_baseline_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.sbatch").write_text(WRONG_SBATCH)
    code, output = run(str(tmp_path), "--write-baseline", str(tmp_path / name))
    assert (code, "cannot write the baseline" in output) == (2, True)


@pytest.mark.parametrize("text", ["{}", "[1, 2]", '{"version": 2, "findings": {"a": "b"}}', '{"findings": {}}'])
def test_a_file_that_is_no_baseline_is_named_as_such(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.sbatch").write_text(WRONG_SBATCH)
    (tmp_path / "baseline.json").write_text(text)
    code, output = run(str(tmp_path / "train.sbatch"), "--baseline", str(tmp_path / "baseline.json"))
    assert (code, "not a baseline" in output) == (2, True), output


SCRIPT = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\nloss.backward()\n"


def test_python_on_standard_input_is_checked_like_a_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert run("-", stdin=SCRIPT)[0] == run(str(script))[0] == 0
    broken = SCRIPT + "def train(:\n    pass\n"
    script.write_text(broken)
    for words, stdin in ((["-"], broken), ([str(script)], None), ([str(tmp_path), "--no-cache"], None)):
        code, output = run(*words, stdin=stdin)
        assert (code, "warning TW001 not valid Python" in output, ":5:11" in output) == (1, True, True), output


def test_the_level_that_fails_is_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_bytes(BROKEN["cluster.yaml"])  # a warning
    given = {level: run(".", "--no-cache", "--fail-on", level)[0] for level in ("error", "warning", "info")}
    assert given == {"error": 0, "warning": 1, "info": 1}
    (tmp_path / "trainwright.toml").write_text('[check]\nfail-on = "info"\nlevels = {TW001 = "info"}\n')
    assert [run(".", *words)[0] for words in ([], ["--fail-on", "warning"])] == [1, 0]
    (tmp_path / "trainwright.toml").write_text('[check]\nfail-on = "note"\n')
    assert run(".")[0] == 2


def test_the_summary_counts_what_settings_ignore_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_bytes(BROKEN["cluster.yaml"])
    (tmp_path / "trainwright.toml").write_text('[check.per-file-ignores]\n"*.yaml" = ["TW001"]\n')
    for _ in range(2):  # the second from the cache
        output = run(".")[1]
        assert "1 ignored by per-file-ignores" in output
        assert "by comment" not in output
    (tmp_path / "trainwright.toml").write_text("[tool.trainwright.check]\nignore = []\n")
    code, output = run(".")
    assert (code, "write [check] here" in output) == (2, True)


def test_a_call_that_runs_no_rule_is_not_clean(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(WRONG_SBATCH)
    assert run(str(tmp_path), "--select", "JOB", "--ignore", "JOB")[0] == 2
    node_only = run(str(tmp_path), "--select", "ENV005")[1]
    assert "no rule was run" in node_only
    assert "1 not run (--node)" in node_only
    assert "not run (--aws)" in run(str(tmp_path), "--node")[1]
    for form in ("sarif", "github", "gitlab"):
        assert run(str(tmp_path), "--statistics", "--format", form)[0] == 2


CLUSTER = """Region: eu-west-1
Image: {Os: ubuntu2204}
HeadNode: {InstanceType: m5.large, Networking: {SubnetId: subnet-0123456789abcdef0}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
  - Name: gpu
    Networking: {SubnetIds: [subnet-0123456789abcdef0]}
    ComputeResources: [{Name: a, InstanceType: p5.48xlarge, MaxCount: 2}]
"""


def test_aws_is_asked_in_the_region_of_the_file_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials no rule of AWS can answer: one refusal, not a failure of each."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    status, output = run(str(file), "--aws")
    assert status == 2
    assert "region" not in output
    assert "credentials" in output
    assert "TW003" not in output


def test_a_configuration_of_gpt_neox_is_left_to_it(tmp_path: Path) -> None:
    text = '{ # sizes\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 1,},\n  # end\n}\n'
    (tmp_path / "12b.yml").write_text(text)
    assert run(str(tmp_path), "--no-cache")[0] == 0
