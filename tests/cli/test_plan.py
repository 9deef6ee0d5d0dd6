"""`trainwright plan` as a user runs it: files, summary, JSON, picture, and what would change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainwright.cli.main import cli
from trainwright.errors import UserError

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "p5-reservation.yaml")


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *args], catch_exceptions=False)


def test_the_summary_names_what_is_created_and_what_it_costs(tmp_path: Path) -> None:
    result = run(EXAMPLE, "-o", str(tmp_path / "plan"), "--explain")
    assert result.exit_code == 0
    for expected in ("p5-reservation-lustre-fsx", "$223.56 an hour", "4 × p5.48xlarge", "2026-08-22", "us-east-2"):
        assert expected in result.stdout
    assert "queues.train.efa" in result.stdout
    assert "p5.48xlarge has 32 EFA cards" in result.stdout
    assert "\x1b[" not in result.stdout


def test_json_is_what_plan_json_holds(tmp_path: Path) -> None:
    result = run(EXAMPLE, "-o", str(tmp_path / "plan"), "--json")
    facts = json.loads(result.stdout)
    jobs = facts.pop("jobs")
    assert facts == json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert jobs[0]["values"]["queue"]["value"] == "train"
    assert facts["cluster"]["name"] == "p5-reservation"
    assert facts["price"]["hour_full"] == pytest.approx(223.56, abs=0.01)
    assert {part["part"] for part in facts["price"]["parts"]} >= {"head", "queue train", "storage /fsx", "network"}
    assert set(facts["files"]) == {
        str(path.relative_to(tmp_path / "plan"))
        for path in (tmp_path / "plan").rglob("*")
        if path.is_file() and path.name != "plan.json"
    }


def test_a_second_plan_shows_what_would_change(tmp_path: Path) -> None:
    folder = str(tmp_path / "plan")
    run(EXAMPLE, "-o", folder)
    assert "No change" in run(EXAMPLE, "-o", folder).stdout
    result = run(EXAMPLE, "-o", folder, "--set", "queues.train.count=6", "--set", "head.instance=m5.4xlarge", "--diff")
    assert "+  InstanceType: m5.4xlarge" in result.stdout
    assert "SlurmQueues[train]" in result.stdout.replace("\n", "")
    assert "Taken together: cluster recreated." in result.stdout
    changes = json.loads(run(EXAMPLE, "-o", folder, "--json").stdout)["changes"]
    assert {change["effect"] for change in changes} == {"replace", "stop"}


def test_jobs_have_their_script(tmp_path: Path) -> None:
    run(EXAMPLE, "-o", str(tmp_path / "plan"))
    script = (tmp_path / "plan" / "jobs" / "pretrain.sbatch").read_text()
    assert "#SBATCH --nodes=4" in script
    assert "--parallel shard=32" in script


def test_check_has_nothing_against_a_plan(tmp_path: Path) -> None:
    run(EXAMPLE, "-o", str(tmp_path / "plan"), "--set", "head.ssh_from=203.0.113.0/24")
    result = CliRunner().invoke(cli, ["check", str(tmp_path / "plan")], catch_exceptions=False)
    assert result.exit_code == 0, result.stdout


def test_the_picture_goes_where_it_is_wanted(tmp_path: Path) -> None:
    picture = tmp_path / "cluster.svg"
    run(EXAMPLE, "-o", str(tmp_path / "plan"), "--svg", str(picture))
    assert picture.read_text() == (tmp_path / "plan" / "picture.svg").read_text()


def test_the_default_folder_has_the_cluster_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(EXAMPLE)
    assert (tmp_path / "p5-reservation.plan" / "cluster.yaml").is_file()


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        run(EXAMPLE, "-o", str(tmp_path / "plan"), "--set", "queues.train.instance=p3dn.24xlarge")
    assert not (tmp_path / "plan").exists()


def test_a_local_cluster_costs_nothing(tmp_path: Path) -> None:
    result = run(str(ROOT / "examples" / "local.yaml"), "-o", str(tmp_path / "plan"))
    assert "costs nothing" in result.stdout
    assert sorted(path.name for path in (tmp_path / "plan").iterdir()) == ["picture.svg", "plan.json"]


def test_amounts_stay_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    from rich.console import Console

    from trainwright.platforms.plan.tree import make_plan
    from trainwright.report.plan_summary import print_summary
    from trainwright.spec.load import load

    plan = make_plan(load(EXAMPLE))
    with (tmp_path / "out").open("w") as file:
        print_summary(Console(file=file, width=60), plan, "plan", plan.files)
    lines = (tmp_path / "out").read_text().splitlines()
    assert max(len(line) for line in lines) <= 60
    assert any(line.rstrip().endswith("$220.16") for line in lines)
    assert any("paid whether it" in line for line in lines)


def test_a_port_that_is_open_to_the_world_is_reported(tmp_path: Path) -> None:
    opened = run(EXAMPLE, "-o", str(tmp_path / "a"), "--set", "head.ssh_from=0.0.0.0/0")
    assert "ssh is open to every address" in opened.stdout
    closed = run(EXAMPLE, "-o", str(tmp_path / "b"))
    assert "ssh is open" not in closed.stdout


def test_a_full_disk_leaves_the_earlier_plan_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainwright import folders
    from trainwright.errors import UserError
    from trainwright.platforms.plan import tree
    from trainwright.spec.load import load

    plan = tree.make_plan(load(EXAMPLE))
    tree.write(plan, tmp_path / "plan", {}, None)
    before = {path: path.read_bytes() for path in (tmp_path / "plan").rglob("*") if path.is_file()}
    real, written = folders.write_text, []

    def until_full(path: Path, text: str) -> None:
        if len(written) == 3:
            raise UserError("cannot write the file: No space left on device", where=str(path))
        written.append(path)
        real(path, text)

    monkeypatch.setattr(folders, "write_text", until_full)
    changed = tree.make_plan(load(EXAMPLE, ["queues.train.count=8"]))
    with pytest.raises(UserError, match="No space left"):
        tree.write(changed, tmp_path / "plan", {}, tree.earlier_files(tmp_path / "plan"))
    assert {path: path.read_bytes() for path in (tmp_path / "plan").rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_terminal_without_unicode_gets_no_traceback(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "bad.yaml").write_text("name: x\nplatform: parallelcluster\nregion: mars-1\nqueues: [{name: a}]\n")
    done = subprocess.run(
        [sys.executable, "-m", "trainwright", "check", "bad.yaml"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "SPC007" in done.stdout
    assert "Traceback" not in done.stderr
