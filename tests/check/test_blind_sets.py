"""The tool that draws and records sets of public files: what it draws is decided by the seed alone, what it tables are
the errors and warnings of drawn files, and the worse of two verdicts counts."""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("blind_sets", ROOT / "tools/blind_sets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("first_sight.csv", "judgements.csv"):
        shutil.copy(module.CORPUS / name, corpus / name)
    monkeypatch.setattr(module, "CORPUS", corpus)
    return module


def test_the_seed_alone_decides(tool: ModuleType, tmp_path: Path) -> None:
    paths = [f"jobs/{letter}.sbatch" for letter in "abcdef"]
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        tool.draw(tmp_path / name, paths if name == "one" else list(reversed(paths)), seed, 2)
    one, same, other = ((tmp_path / name / "draw-1.txt").read_text() for name in ("one", "same", "other"))
    assert one == same != other
    assert sorted(line.split(":")[0] for n in (1, 2) for line in (tmp_path / f"one/draw-{n}.txt").open()) == paths


def test_strings_are_forms_with_values_that_the_seed_decides(tool: ModuleType, tmp_path: Path) -> None:
    forms = ["#SBATCH --time={00-24}:00:00", "srun python {@@}", "kind: {PyTorchJob|MPIJob}"]
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        tool.draw_strings(tmp_path / name, forms, seed, 1)
    one, same, other = ((tmp_path / name / "strings-1.txt").read_text() for name in ("one", "same", "other"))
    assert one == same != other
    shapes = r"#SBATCH --time=\d\d:00:00|srun python [a-z]{2}|kind: (PyTorch|MPI)Job"
    assert all(re.fullmatch(shapes, line) for line in one.splitlines())


def test_the_forms_that_are_kept_can_be_searched(tool: ModuleType, tmp_path: Path) -> None:
    tool.draw_strings(tmp_path, (ROOT / "tests/check/corpus/forms.txt").read_text().splitlines(), 1, 2)
    strings = [line for n in (1, 2) for line in (tmp_path / f"strings-{n}.txt").read_text().splitlines()]
    assert len(strings) == len(set(strings)) > 150
    assert max(map(len, strings)) <= 50, "the longest that the search takes"


def test_a_copy_of_another_length_is_not_stored(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = """@@@ kim/jobs c0ffee 4 3 slurm/a.sbatch
a	b
@@@ 17 - 2 4 job.sh
é


@@@ 18 - 2 40 job.sh
lost its line ends
@@@ 17 - 9 4 job.sh
é
"""
    tool.store(tmp_path, "3", copies.splitlines(keepends=True))
    raw = {str(one.relative_to(tmp_path / "raw")): one.read_bytes() for one in tmp_path.glob("raw/**/*.*")}
    assert raw == {"kim__jobs/slurm/a.sbatch": b"a\tb", "unnamed__17/job.sh": "é\n\n\n".encode()}
    assert tool.collected(tmp_path) == {("kim/jobs", "slurm/a.sbatch"), ("unnamed/17", "job.sh")}
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("not")] == [
        "not stored: unnamed/18 job.sh: 18 characters of 40, without line ends",
        "not stored: unnamed/17 job.sh: stored before",
    ]


def test_a_header_without_its_five_words_is_refused(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = """@@@ 17 - 2 16 patch.sh
a
@@@ -1,2 +1 @@@
b
@@@ 18 - 2 many job.sh
c
@@@
@@@ 19 - 2 2 job.sh
d
"""
    tool.store(tmp_path, "3", copies.splitlines(keepends=True))
    assert [str(one.relative_to(tmp_path / "raw")) for one in tmp_path.glob("raw/**/*.*")] == ["unnamed__19/job.sh"]
    assert capsys.readouterr().out.splitlines() == [
        "not stored: unnamed/17 patch.sh: 1 characters of 16, without line ends",
        "not stored: line 3 is no header: @@@ -1,2 +1 @@@",
        "not stored: line 5 is no header: @@@ 18 - 2 many job.sh",
        "not stored: line 7 is no header: @@@",
        "stored: unnamed/19 job.sh",
    ]


def test_a_set_is_tabled_and_recorded(tool: ModuleType, tmp_path: Path) -> None:
    job = tmp_path / "ZZ/kim__jobs/train.sbatch"
    job.parent.mkdir(parents=True)
    job.write_text(
        "#!/bin/bash\n#SBATCH --time=12h\n#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python train.py\n"
    )
    (job.parent / "other.sbatch").write_text("#!/bin/bash\n#SBATCH --time=3h\nsrun python train.py\n")
    (tmp_path / "log-1.csv").write_text("train.sbatch,kim/jobs,abc,12\n")
    tool.write_table(tmp_path, "ZZ")
    rows = list(csv.DictReader((tmp_path / "ZZ-findings.csv").open()))
    assert {(row["repository"], row["file"], row["code"]) for row in rows} == {
        ("kim/jobs", "train.sbatch", "SLU006"), ("kim/jobs", "train.sbatch", "SHL001")
    }  # fmt: skip
    for number, verdict in ((1, "useful"), (2, "noise")):
        lines = [f"{row['id']},{verdict},it is so\n" for row in rows]
        (tmp_path / f"ZZ-judge-{number}.csv").write_text("".join(["id,verdict,why\n", *lines]))
    tool.record(tmp_path, "ZZ")
    for table in ("first_sight.csv", "judgements.csv"):
        recorded = [row for row in csv.DictReader((tool.CORPUS / table).open()) if row["repository"] == "kim/jobs"]
        assert [row["verdict"] for row in recorded] == ["noise"] * len(rows)
