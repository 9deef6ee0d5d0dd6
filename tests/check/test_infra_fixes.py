"""`--fix` on the infrastructure rules: an edit removes its finding, keeps everything around it, and brings no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.check.fixes import fix_files

EXAMPLES = Path(__file__).parents[2] / "src/trainwright/check/examples"
FAMILIES = ("CAP", "CFG", "CFN", "EKS", "HYP", "NET", "SEC", "SLU", "STO")
BAD = [
    path
    for path in sorted(EXAMPLES.glob("*/bad*"))
    if path.parent.name.startswith(FAMILIES)
    and path.is_file()
    and path.suffix != ".expect"
    and ".aws." not in path.name
]
FIXABLE = [p for p in BAD if any(f.edit is not None for f in check([str(p)]).findings)]


def test_some_rules_have_fixes() -> None:
    assert {"CAP004", "SEC002", "HYP001"} <= {path.parent.name for path in FIXABLE}


@pytest.mark.parametrize("path", FIXABLE, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_fix(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    before = check([str(copy)]).findings
    fixable = [f for f in before if f.edit is not None and f.edit.safe]
    fix_files(fixable)
    after = {(f.code, f.span.line, f.message) for f in check([str(copy)]).findings}
    assert after == {(f.code, f.span.line, f.message) for f in before if f.edit is None or not f.edit.safe}
    old, new = path.read_text().splitlines(), copy.read_text().splitlines()
    changed = {number for number, (one, two) in enumerate(zip(old, new, strict=True), start=1) if one != two}
    assert changed == {f.span.line for f in fixable}


def test_fix_keeps_quotes(tmp_path: Path) -> None:
    path = tmp_path / "template.json"
    path.write_text(
        '{"Resources": {"T": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": '
        '{"MetadataOptions": {"HttpTokens": "optional"}}}}}}'
    )
    fix_files(check([str(path)]).findings)
    assert '"HttpTokens": "required"' in path.read_text()
    assert check([str(path)]).findings == []


def test_a_default_that_serves_other_places_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        "Parameters:\n  Tokens: {Type: String, Default: optional}\n"
        "Resources:\n  T:\n    Type: AWS::EC2::LaunchTemplate\n    Properties:\n"
        "      LaunchTemplateData:\n        MetadataOptions: {HttpTokens: !Ref Tokens}\n"
    )
    [finding] = check([str(path)]).findings
    assert (finding.code, finding.span.line, finding.edit) == ("SEC002", 2, None)
