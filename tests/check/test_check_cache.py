"""Results from the cache are those of a check without it: whatever a finding depends on, a change of it is seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check import cache as cache_module
from trainwright.check.cache import Cache
from trainwright.check.config import Config
from trainwright.check.engine import RulePlan, Selection
from trainwright.check.registry import Rule
from trainwright.check.runner import RunOptions, run

LOGS = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python train.py\n"
ACCOUNT = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --account=$ACCOUNT\nsrun python train.py\n"
JOB = "jobs/a/b/job.sbatch"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for folder in (".git", "jobs/a/b", "scripts"):
        (root / folder).mkdir(parents=True)
    return root


def codes(root: Path, *, cache: bool = True) -> list[str]:
    result = run([str(root / JOB)], Selection(select=("SHL", "SLU")), {}, Config(), RunOptions(cache=cache))
    return [finding.code for finding in result.findings]


def edited(root: Path) -> None:
    (root / "scripts/submit.sh").write_text("mkdir -p logs\nsbatch jobs/a/b/job.sbatch\n")


def added(root: Path) -> None:
    (root / "scripts/launch.sh").write_text("mkdir -p logs\nsbatch jobs/a/b/job.sbatch\n")


def documented(root: Path) -> None:
    (root / "README.md").write_text("First `mkdir -p logs`, then submit.\n")


def in_a_new_directory(root: Path) -> None:
    (root / "slurm").mkdir()
    (root / "slurm/submit.sh").write_text("mkdir -p logs\nsbatch jobs/a/b/job.sbatch\n")


def made(root: Path) -> None:
    (root / "logs").mkdir()


@pytest.mark.parametrize("change", [edited, added, documented, in_a_new_directory, made])
def test_a_change_around_a_script_is_seen(repository: Path, change: Callable[[Path], None]) -> None:
    (repository / JOB).write_text(LOGS)
    (repository / "scripts/submit.sh").write_text("sbatch jobs/a/b/job.sbatch\n")
    assert codes(repository) == codes(repository) == ["SHL001"]
    change(repository)
    assert codes(repository) == codes(repository, cache=False) == []


def test_a_change_that_removes_the_reason_is_seen(repository: Path) -> None:
    (repository / JOB).write_text(LOGS)
    edited(repository)
    assert codes(repository) == []
    (repository / "scripts/submit.sh").unlink()
    assert codes(repository) == codes(repository, cache=False) == ["SHL001"]


def test_a_program_that_fills_a_script_in_is_seen(repository: Path) -> None:
    (repository / JOB).write_text(ACCOUNT)
    assert codes(repository) == ["SLU006"]
    (repository / "scripts/submit.sh").write_text("envsubst < jobs/a/b/job.sbatch | sbatch\n")
    assert codes(repository) == codes(repository, cache=False) == []


def test_a_new_repository_is_seen(repository: Path) -> None:
    """Texts are read up to its root."""
    (repository / ".git").rmdir()
    (repository / JOB).write_text(LOGS)
    documented(repository)
    assert codes(repository) == ["SHL001"]
    (repository / ".git").mkdir()
    assert codes(repository) == codes(repository, cache=False) == []


def test_the_current_directory_is_seen(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is submitted where `check` is called, as far as it can know."""
    (repository / JOB).write_text(LOGS)
    (tmp_path / "elsewhere/logs").mkdir(parents=True)
    assert codes(repository) == ["SHL001"]
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert codes(repository) == codes(repository, cache=False) == []


def test_an_unchanged_script_is_not_checked_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / JOB).write_text(LOGS)
    assert codes(repository) == ["SHL001"]
    monkeypatch.setattr("trainwright.check.runner.check_one", None)
    assert codes(repository) == ["SHL001"]


def test_each_directory_is_listed_once_for_all_scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (repository / f"jobs/a/b/{number}.sbatch").write_text(LOGS)
    paths = [str(repository / "jobs")]
    run(paths, Selection(select=("SHL",)), {}, Config(), RunOptions(cache=True))
    listed: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": listed.append(str(path)) or scan(path))
    result = run(paths, Selection(select=("SHL",)), {}, Config(), RunOptions(cache=True))
    assert len(result.findings) == 50
    by_the_cache = [path for path in listed if path.startswith(str(repository)) and not path.startswith(paths[0])]
    assert len(by_the_cache) == len(set(by_the_cache))


def key() -> str:
    return Cache.open(RulePlan.of(Selection(), {}, Config())).path.name


@pytest.mark.parametrize("name", ["check/data/access.toml", "catalog/data/instances.csv", "spec/source.py"])
def test_the_tables_and_all_code_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before, stamp = key(), cache_module._stamp
    assert key() == before
    monkeypatch.setattr(cache_module, "_stamp", lambda path: "new" if path.endswith(name) else stamp(path))
    assert key() != before


def test_a_package_with_rules_of_a_user_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lab_rules"
    package.mkdir()
    (package / "__init__.py").write_text("def a_rule(file):\n    '''A rule.'''\n    return iter(())\n")
    (package / "limits.csv").write_text("1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import lab_rules  # type: ignore[import-not-found]

    plan = RulePlan.of(Selection(), {}, Config())
    plan = RulePlan(plan.selection, (Rule("LAB001", "error", "offline", lab_rules.a_rule),), (), {}, plan.config)
    before = Cache.open(plan).path
    assert Cache.open(plan).path == before
    (package / "limits.csv").write_text("22\n")
    assert Cache.open(plan).path != before
