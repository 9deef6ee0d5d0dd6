"""The engine: which files are read, what silences a finding, what a broken rule or file does."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.check.engine import Selection, check, ignored_lines, run_rule
from trainwright.check.model import File
from trainwright.check.registry import Problem, Rule, rule
from trainwright.cli.main import cli
from trainwright.errors import UserError

BAD = (Path(__file__).parents[2] / "src/trainwright/check/examples/CAP001/bad.parallelcluster.yaml").read_text()
ONLY = Selection(select=("CAP001",))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(BAD)
    return path


def codes(path: Path, selection: Selection = ONLY) -> list[str]:
    return [finding.code for finding in check([str(path)], selection).findings]


def test_a_comment_silences_its_own_line_or_the_next(bad: Path) -> None:
    assert codes(bad) == ["CAP001"]
    bad.write_text(BAD.replace("MaxCount: 4", "MaxCount: 4  # trainwright: ignore[CAP001] grows next week"))
    result = check([str(bad)], ONLY)
    assert (result.findings, result.ignored) == ([], 1)
    bad.write_text(
        BAD.replace("          MaxCount", "          # trainwright: ignore[NET001, CAP001] why\n          MaxCount")
    )
    assert codes(bad) == []
    bad.write_text(BAD.replace("MaxCount: 4", "MaxCount: 4  # trainwright: ignore[NET001] another rule"))
    assert codes(bad) == ["CAP001"]


def test_ignored_lines_read_every_comment_style() -> None:
    assert ignored_lines("a: 1  # trainwright: ignore[AB001]\n// trainwright: ignore[CD002] x\nb\n") == {
        1: {"AB001"},
        3: {"CD002"},
    }


def test_select_and_ignore_go_by_prefix(bad: Path) -> None:
    assert codes(bad, Selection(select=("CAP",))) == ["CAP001"]
    assert codes(bad, Selection(select=("CAP",), ignore=("CAP001",))) == []
    with pytest.raises(UserError, match="no rule starts with 'CAPP'"):
        codes(bad, Selection(select=("CAPP",)))


def test_a_folder_is_walked_and_strangers_are_passed_over(bad: Path) -> None:
    (bad.parent / "values.yaml").write_text("replicas: 3\n")
    (bad.parent / "broken.yaml").write_text("a: [\n")
    (bad.parent / ".git").mkdir()
    (bad.parent / ".git" / "cluster.yaml").write_text(BAD)
    result = check([str(bad.parent)], ONLY)
    assert [Path(f.file).name for f in result.findings] == ["cluster.yaml"]
    assert result.files == 1


def test_a_named_stranger_is_an_error_that_says_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("replicas: 3\n")
    with pytest.raises(UserError, match="not a kind of file") as caught:
        check([str(path)])
    assert "ParallelCluster" in caught.value.fix
    with pytest.raises(UserError, match="no such file"):
        check([str(tmp_path / "valeus.yaml")])


def test_a_broken_file_is_a_finding_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("Region: x\nScheduling: [\n")
    finding = check([str(path)]).findings[0]
    assert (finding.code, finding.level, finding.span.line) == ("TW001", "error", 3)


def test_a_misshapen_spec_gives_every_mistake(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: x\nplatform: local\nqueues:\n  - {name: a, nods: 2}\nmonitoring: perhaps\n")
    found = [f for f in check([str(path)]).findings if f.code == "TW002"]
    assert [(f.span.line, f.fix) for f in found] == [(4, "did you mean 'nodes'?"), (5, found[1].fix)]
    assert "does not fit here" in found[1].message


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    finding = check(["-"], ONLY).findings[0]
    assert (finding.file, finding.span.line) == ("<stdin>", 18)


def test_a_rule_that_fails_is_a_finding() -> None:
    def broken(file: File) -> Iterator[Problem]:
        """Break."""
        raise KeyError("oops")
        yield

    [finding] = run_rule(Rule("XYZ001", "error", "offline", broken), File("f.yaml", "", "shell"))
    assert finding.code == "TW003"
    assert "XYZ001" in finding.message
    assert "KeyError" in finding.message


def test_a_code_belongs_to_one_rule_and_has_a_shape() -> None:
    with pytest.raises(ValueError, match="two rules"):

        @rule("CAP001")
        def other(file: File) -> Iterator[Problem]:
            yield from ()

    with pytest.raises(ValueError, match="like CAP001"):
        rule("cap1")


USER_RULES = """
from trainwright.check.registry import problem, rule

@rule("ACME001", "warning")
def no_fours(file):
    \"\"\"Four is unlucky.\"\"\"
    for _, queue in file.queues:
        yield problem(queue.max_count, "four")
"""


def run_with_package(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`trainwright check` with a package of a user's installed beside it."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trainwright.rules]\nacme = acme_rules\n")
    (folder / "acme_rules.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "trainwright", "check", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_rules_of_a_users_package_run_beside_ours(bad: Path) -> None:
    done = run_with_package(bad.parent, USER_RULES, str(bad), "--select", "ACME", "--format", "json")
    assert [row["code"] for row in json.loads(done.stdout)] == ["ACME001"], done.stderr


def test_a_users_package_that_cannot_be_loaded_is_named(bad: Path) -> None:
    done = run_with_package(bad.parent, "import nothing_of_that_name", str(bad))
    assert done.returncode == 2
    assert "acme_rules" in done.stderr
    assert "Traceback" not in done.stderr


def test_rules_that_need_more_are_reported_as_skipped(bad: Path) -> None:
    result = check([str(bad)], Selection(select=("CAP003",)))
    assert [(skip.code, "--aws" in skip.reason) for skip in result.skips] == [("CAP003", True)]


def test_node_rules_run_on_the_node_that_the_user_names_with_a_flag(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_SOCKET_IFNAME=wlan7\nsrun python train.py\n")
    without = CliRunner().invoke(cli, ["check", "--select", "ENV003", str(script)])
    assert "ENV003" not in without.output
    result = CliRunner().invoke(cli, ["check", "--select", "ENV003", "--node", str(script)])
    assert result.exit_code == 1
    assert "wlan7 matches no interface of this node" in result.output


def test_a_foreign_file_is_checked_without_pydantic() -> None:
    """Half of the time of a cold `check` would go into importing it."""
    import subprocess
    import sys

    golden = Path(__file__).parents[1] / "golden/jobs/parallelcluster/pretrain.sbatch"
    program = f"""
import sys
from trainwright.check.engine import check
assert check([{str(golden)!r}]).files == 1
print([name for name in ("pydantic", "trainwright.spec.model", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
