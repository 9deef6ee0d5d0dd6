"""SLU006 and JOB013 on #SBATCH lines with characters that sbatch does not take: dashes and quotes of a word processor,
blanks behind dashes, capitals. Each was refused by sbatch 22.05."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=a\n#SBATCH {line}\n#SBATCH --gres=gpu:4\nsrun python train.py\n"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("-—mem=16G", "write --mem=16G, with the hyphens of ASCII"),
        ("—mem=16G", "write --mem=16G, with the hyphens of ASCII"),
        ("––mem=16G", "write --mem=16G, with the hyphens of ASCII"),
        ("–N 2", "write -N 2, with the hyphens of ASCII"),
        ("–mail-user=a@b.edu", "write --mail-user=a@b.edu, with the hyphens of ASCII"),
        ("–p gpu # the queue", "write -p gpu, with the hyphens of ASCII"),
        ("-- mem=16G", "write --mem=16G without the blank"),
        ("- N 2", "write -N 2 without the blank"),
        ("--mem=“16G”", "write --mem=16G"),
        ("--mem==16G", "write --mem=16G"),
        ("--ntasks==4", "write --ntasks=4"),
        ("--ntasks-per-node=“4”", "write --ntasks-per-node=4"),
        ("--gres=gpu：2", "write --gres=gpu:2"),
        ("--time=‘10:00’", "write --time=10:00"),
        ("--TIME=10:00:00", "write --time: sbatch's options have small letters and hyphens"),
        ("--memory=8G", "did you mean --mem?"),
        ("--mem_per_gpu=4G", "write --mem-per-gpu: sbatch's options have small letters and hyphens"),
        ("--mail-user=a@b.edu for the job", "write # before a comment"),
        ("mail-user=a@b.edu", "write two dashes before an option, and # before a comment"),
    ],
)
@pytest.mark.parametrize("behind", [True, False], ids=["between", "last"])
def test_a_character_that_sbatch_refuses_is_an_error(run: Run, line: str, fix: str, behind: bool) -> None:
    text = SCRIPT.format(line=line)
    if not behind:
        text = text.replace("#SBATCH --gres=gpu:4\n", "")
    (finding,) = [f for f in run("a.sbatch", text) if f.code in ("SLU006", "JOB013") and f.level != "info"]
    assert (finding.level, finding.span.line, finding.fix) == ("error", 3, fix)


def test_a_script_whose_dashes_are_all_wrong_is_reported_line_by_line(run: Run) -> None:
    text = "#!/bin/bash\n#SBATCH —nodes=2\n#SBATCH —time=1:00:00\nsrun python train.py\n"
    assert shown(run("a.sbatch", text, "SLU006")) == ["error SLU006 2", "error SLU006 3"]


@pytest.mark.parametrize(
    "line",
    ["--job-name=“a b”", "--comment=a—b", "# —mem=16G", "--output=“x”.out", "-J a–b", "--mem=16G # — all of it"],
)
def test_a_character_within_a_text_is_taken(run: Run, line: str) -> None:
    fixes = [f.fix for f in run("a.sbatch", SCRIPT.format(line=line), "SLU006")]
    assert [fix for fix in fixes if "hyphens" in fix or fix.startswith("write --m")] == []


@pytest.mark.parametrize("line", ["— options of Slurm —", "- the queue"])
def test_prose_without_any_option_is_no_option_with_another_dash(run: Run, line: str) -> None:
    findings = run("a.sbatch", SCRIPT.format(line=line), "SLU006")
    assert all("hyphens" not in f.fix and "without the blank" not in f.fix for f in findings)


def test_minus_s_takes_no_value(run: Run) -> None:
    (finding,) = run("a.sbatch", SCRIPT.format(line="-signal=USR1@60"), "SLU006")
    assert (finding.level, finding.fix) == ("warning", "write --signal=USR1@60")
    assert finding.message == "sbatch reads -s and then -i with the value 'gnal=USR1@60': a long option has two dashes"
