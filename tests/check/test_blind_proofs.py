"""Rules that no public file has met, each proven on a file that was written from the first paragraph of its page; the
rule and its examples were unseen (SPC014's proof excepted). blind_proofs.csv keeps what `check` said at first sight;
the mistake must now be the one thing that is reported, and the corrected twin must be clean."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from written_facts import WrittenFacts

from trainwright.check.engine import check, codes
from trainwright.check.finding import Finding
from trainwright.health.facts import ThisNode

HERE = Path(__file__).parent
FILES = HERE / "blind"
CORPUS = HERE / "corpus"
PROOFS = {row["code"]: row for row in csv.DictReader((CORPUS / "blind_proofs.csv").open(encoding="utf-8"))}
ON_A_NODE = ("ENV005",)  # about files of the node that `check --node` runs on
ABOUT_OURSELVES = "TW"  # codes of unreadable files and of ignores


def findings(code: str, side: str, folder: Path) -> list[Finding]:
    project = folder / "project" / side  # a directory named `tests` is not searched
    shutil.copytree(FILES / code / side, project)
    facts: dict[str, object] = {"node": ThisNode()} if code in ON_A_NODE else {}
    answers = FILES / code / "facts.toml"
    if answers.exists():
        facts["aws"] = WrittenFacts(answers)
    return check([str(project)], facts=facts).findings


@pytest.mark.parametrize("code", PROOFS)
def test_the_mistake_is_the_one_thing_reported(code: str, tmp_path: Path) -> None:
    proof, reported = PROOFS[code], findings(code, "bad", tmp_path)
    places = [(f.code, Path(f.file).name, f.span.line) for f in reported]
    assert (code, proof["file"], int(proof["line"])) in places
    assert {f.code for f in reported if f.level != "info"} <= {code}
    assert [f for f in findings(code, "good", tmp_path) if f.level != "info" or f.code == code] == []


def test_every_proof_has_its_files() -> None:
    assert {path.name for path in FILES.iterdir()} == set(PROOFS)
    assert {row["first_result"] for row in PROOFS.values()} <= {"reported", "missed", "false alarm"}
    assert all(row["note"] for row in PROOFS.values() if row["first_result"] != "reported")


def test_every_rule_is_proven_on_a_public_file_or_a_blind_one() -> None:
    judged = set()
    for table in ("judgements.csv", "first_sight.csv"):
        with (CORPUS / table).open(encoding="utf-8") as file:
            judged |= {row["code"] for row in csv.DictReader(file) if row["verdict"] == "useful"}
    assert {code for code in codes() if not code.startswith(ABOUT_OURSELVES)} - judged - set(PROOFS) == set()


def test_the_manual_states_the_first_results() -> None:
    first = [row["first_result"] for row in PROOFS.values()]
    manual = (HERE.parents[1] / "docs/check-accuracy.md").read_text(encoding="utf-8")
    reported, missed = first.count("reported"), first.count("missed")
    stated = f"{len(first)} rules: {reported} were reported at first sight, {missed} missed"
    assert stated in " ".join(manual.split())
