"""What `check` prints, for people and for machines, and what `--fix` writes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.check.engine import Result
from trainwright.check.finding import Edit, Finding
from trainwright.check.fixes import apply_edits, fix_files
from trainwright.check.formats import as_github, as_sarif
from trainwright.check.own_codes import OWN_CODES
from trainwright.check.text import render
from trainwright.cli.main import cli
from trainwright.spec.source import Span

EXAMPLE = Path(__file__).parents[2] / "src/trainwright/check/examples/CAP001/bad.parallelcluster.yaml"


def run(*words: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(cli, ["check", *words])
    return outcome.exit_code, outcome.output


def test_text_shows_place_excerpt_caret_reason_and_fix() -> None:
    code, output = run(str(EXAMPLE), "--select", "CAP001")
    lines = output.splitlines()
    assert code == 1
    assert lines[0] == "error CAP001 cpu/c5: the maximum count (4) is below the minimum (8)"
    assert lines[1].endswith("bad.parallelcluster.yaml:18:21")
    assert lines[3:5] == [" 18│           MaxCount: 4", "   │                     ^"]
    assert lines[5].startswith("   │ why: ")
    assert lines[6] == "   ╰─ fix: raise it to 8 or more"
    assert lines[-1].startswith("1 error in 1 file · ")
    assert "\x1b" not in output, "colours are for terminals"


def test_text_of_a_long_line_and_of_a_tab_still_points_at_the_value() -> None:
    text = "\tkey: " + "x" * 300 + " bad"
    finding = Finding("AB001", "warning", "f", Span(1, 308, 1, 311), "m")
    shown = render(Result([finding], texts={"f": text}, files=1), {}, colour=False).splitlines()
    line, caret = shown[2], shown[3]
    assert line[caret.index("^") : caret.rindex("^") + 1] == "bad"


def test_words_are_broken_to_the_terminal_and_left_whole_in_a_pipe() -> None:
    long = "a reason of many words " * 10
    finding = Finding("AB001", "warning", "f", Span(1, 190, 1, 193), long.strip(), long.strip(), why=long.strip())
    result = Result([finding], texts={"f": "x" * 189 + "bad"}, files=1)
    narrow = render(result, {}, colour=False, width=60).splitlines()
    assert max(len(line) for line in narrow[:-1]) <= 60
    line, caret = next((a, b) for a, b in pairwise(narrow) if "^" in b)
    assert line[caret.index("^") : caret.rindex("^") + 1] == "bad"
    assert long.strip() in render(result, {}, colour=False)


def test_notes_are_one_line_each_below_what_counts() -> None:
    notes = [Finding("AB002", "info", "f", Span(n, 1, n, 2), f"note {n}", "a fix") for n in range(1, 24)]
    loud = Finding("AB001", "warning", "f", Span(9, 1, 9, 2), "a mistake")
    result = Result([*notes[:8], loud, *notes[8:]], texts={"f": "x\n" * 30}, files=1)
    lines = render(result, {}, colour=False).splitlines()
    assert lines[0] == "warning AB001 a mistake"
    assert lines[lines.index("  f:1:1  AB002  note 1") - 1].startswith("notes that do not fail the check")
    assert lines[-4:-2] == ["  f:20:1  AB002  note 20", "  and 3 more"]
    assert lines[-1].startswith("1 warning, 23 notes in 1 file")
    assert render(result, {}, colour=False, full=True).count("fix: a fix") == 23


def test_notes_that_fail_the_check_are_shown_in_full(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --output=logs/%j.out\nsrun torchrun train.py\n")
    assert "mkdir -p logs" not in run(str(script), "--select", "SHL001")[1]
    code, output = run(str(script), "--select", "SHL001", "--fail-on", "info")
    assert code == 1
    assert "fix: run `mkdir -p logs`" in output


def test_a_folder_says_what_it_could_not_parse(tmp_path: Path) -> None:
    assert "nothing to check in 0 files" in run(str(tmp_path))[1]
    (tmp_path / "half.yaml").write_text("Scheduling: [")
    code, output = run(str(tmp_path))
    assert code == 0
    assert f"could not be parsed: {tmp_path / 'half.yaml'}" in output


def test_files_of_this_folder_are_named_as_git_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.yaml").write_text(EXAMPLE.read_text())
    monkeypatch.chdir(tmp_path)
    assert "file=cluster.yaml," in run(".", "--format", "github")[1]


def test_json_rows_have_the_promised_fields() -> None:
    code, output = run(str(EXAMPLE), "--select", "CAP001", "--format", "json")
    [row] = json.loads(output)
    assert code == 1
    assert list(row) == [
        "code", "level", "file", "line", "column", "end_line", "end_column", "message", "why", "fix", "url",
        "also",
    ]  # fmt: skip
    assert row["why"].startswith("the file is refused when it is applied")
    assert (row["code"], row["line"], row["column"], row["end_column"]) == ("CAP001", 18, 21, 22)


def test_nothing_found_is_an_empty_list_and_status_zero() -> None:
    good = EXAMPLE.with_name("good.parallelcluster.yaml")
    assert run(str(good), "--format", "json") == (0, "[]\n")
    assert "no mistakes found in 1 file" in run(str(good))[1]
    assert run(str(good), "--format", "github") == (0, "")


def test_sarif_holds_rule_place_and_fix() -> None:
    edit = Edit(Span(3, 5, 3, 9), "true")
    finding = Finding("CAP001", "error", "dir/f.yaml", Span(3, 5, 3, 9), "m", "write true", edit, "it hangs.")
    log = json.loads(as_sarif(Result([finding]), {}))
    [result] = log["runs"][0]["results"]
    assert (log["version"], result["ruleId"], result["level"]) == ("2.1.0", "CAP001", "error")
    assert result["message"]["text"] == "m. Why: it hangs. Fix: write true"
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 9}
    assert result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "true"}


def test_github_commands_escape_what_would_break_them() -> None:
    finding = Finding("CAP001", "info", "a,b.yaml", Span(1, 2, 1, 3), "50% of\nit", "do: this", why="so: no")
    assert as_github(Result([finding])) == (
        "::notice file=a%2Cb.yaml,line=1,col=2,endLine=1,endColumn=3,title=CAP001::"
        "50%25 of%0Ait%0Awhy: so: no%0Afix: do: this"
    )


def test_explain_and_rules_and_wrong_words() -> None:
    assert "Why: " in run("--explain", "cap001")[1]
    assert all("Why: " in run("--explain", own.code)[1] for own in OWN_CODES)
    assert all(code in run("--rules")[1] for code in ("CAP001", "TW004"))
    assert run()[0] == 2


def test_edits_keep_everything_else_and_skip_overlaps() -> None:
    text = "a: false  # keep me\nb: 1\n"
    edits = [Edit(Span(1, 4, 1, 9), "true"), Edit(Span(1, 6, 1, 8), "XX"), Edit(Span(2, 4, 2, 5), "22")]
    assert apply_edits(text, edits) == "a: true  # keep me\nb: 22\n"
    assert apply_edits("x\r\ny: 1\r\n", [Edit(Span(2, 4, 2, 5), "2")]) == "x\r\ny: 2\r\n"


def test_fixing_keeps_the_mode_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "f.sh"
    path.write_bytes(b"a: false\r\n")
    path.chmod(0o750)
    finding = Finding("AB001", "error", str(path), Span(1, 4, 1, 9), "m", "f", Edit(Span(1, 4, 1, 9), "true"))
    [fixed] = fix_files([finding])
    assert (fixed.name, fixed.count) == (str(path), 1)
    assert "+a: true" in fixed.diff
    assert path.read_bytes() == b"a: true\r\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [path]


SWITCHES = """#!/bin/bash
#SBATCH --nodes=2
export FI_PROVIDER=efa NCCL_NET=Socket
export NCCL_NET=Socket   # the switch
export NCCL_TREE_THRESHOLD=0  # old
export FOO=1 NCCL_LL_THRESHOLD=0
NCCL_NET=Socket srun torchrun --nproc_per_node=8 train.py
pip install numpy torch>=2.4 "a b"
"""


def test_safe_fixes_keep_what_has_an_effect_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.sbatch"
    path.write_text(SWITCHES)
    run(str(path), "--fix", "--select", "ENV,SHL001")
    kept = SWITCHES.replace("export NCCL_TREE_THRESHOLD=0  # old", "# old").replace(" NCCL_LL_THRESHOLD=0", "")
    assert path.read_text() == kept
    run(str(path), "--unsafe-fixes", "--select", "ENV")
    removed = kept.replace("export NCCL_NET=Socket   # the switch", "# the switch").replace(" NCCL_NET=Socket", "")
    assert path.read_text() == removed.replace("NCCL_NET=Socket srun", "srun")


def test_requirements_are_quoted_by_a_safe_fix(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("#!/bin/bash\npip install numpy torch>=2.4 x[a]>=1,<2\ntrue\npip install torchvision>=0.2\n")
    assert run(str(path), "--fix", "--select", "SHL001")[0] == 0
    expected = "#!/bin/bash\npip install numpy 'torch>=2.4' 'x[a]>=1,<2'\ntrue\npip install 'torchvision>=0.2'\n"
    assert path.read_text() == expected


def test_errors_that_go_to_a_file_named_one_are_joined_to_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    lines = "torchrun a.py > log 2>1\npython b.py 2>1 | tee log\n"
    others = "torchrun c.py > log 2>&1\npython d.py 2>1.log; echo 'x 2>1' 12>1\n"
    path.write_text("#!/bin/bash\n" + lines + others)
    assert run(str(path), "--fix", "--select", "SHL001")[0] == 0
    assert path.read_text() == "#!/bin/bash\n" + lines.replace("2>1", "2>&1") + others


def test_a_finding_has_its_own_reason(tmp_path: Path) -> None:
    (tmp_path / "a.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=32\nexport FI_PROVIDER=efa NCCL_NET=Socket\nexport NCCL_DEBUG=TRACE\n"
        "srun --container-image=a.sqsh --container-mounts=/fsx/data:/data torchrun train.py --data /fsx/data\n"
    )
    output = run(str(tmp_path / "a.sbatch"), "--select", "ENV001,ENV002,JOB017", "--format", "full")[1]
    assert "why: over TCP" in output
    assert "why: every rank writes lines of its own" in output
    assert "fix: write /data\n" in output
    assert "why: the file is refused" in run(str(EXAMPLE), "--select", "CAP001")[1]
