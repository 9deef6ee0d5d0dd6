"""Every rule has bad and good examples: a bad one gives exactly its code at the places its header expects, a good one
gives no finding of any rule. `# expect: line:column` (first lines of a bad file) counts lines of the whole file; a file
that cannot hold comments has its expectations in `<name>.expect` beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check

EXAMPLES = Path(__file__).parents[2] / "src/trainwright/check/examples"
BAD = sorted(path for path in EXAMPLES.glob("*/bad*") if path.suffix != ".expect")
GOOD = sorted(EXAMPLES.glob("*/good*"))


def expected(path: Path) -> list[tuple[int, int]]:
    beside = path.with_name(path.name + ".expect")
    text = beside.read_text() if beside.exists() else path.read_text()
    return [(int(line), int(column)) for line, column in re.findall(r"expect: (\d+):(\d+)", text)]


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", BAD, ids=name)
def test_bad_example(path: Path) -> None:
    code = path.parent.name
    places = expected(path)
    assert places, f"{path} expects nothing"
    found = check([str(path)], Selection(select=(code,))).findings
    assert [(f.code, f.span.line, f.span.column) for f in found] == [(code, line, column) for line, column in places]


@pytest.mark.parametrize("path", GOOD, ids=name)
def test_good_example(path: Path) -> None:
    found = check([str(path)]).findings
    assert [(f.code, f.span.line, f.message) for f in found] == []
