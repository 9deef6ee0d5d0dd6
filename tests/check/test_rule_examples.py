"""Every rule has bad and good examples: a bad one gives exactly its code at the places its header expects, a good one
gives no finding of any rule. `# expect: line:column` (first lines of a bad file) counts lines of the whole file; a file
that cannot hold comments has its expectations in `<name>.expect` beside it. Examples named `*.aws.*` are checked with
the answers of AWS that `facts.toml` of their folder holds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.registry import all_rules

sys.path.insert(0, str(Path(__file__).parent))
from written_facts import WrittenFacts, WrittenNode

DOCS = Path(__file__).parents[2] / "docs/rules"
EXAMPLES = Path(__file__).parents[2] / "src/trainwright/check/examples"
BAD = sorted(path for path in EXAMPLES.glob("*/bad*") if path.suffix != ".expect")
GOOD = sorted(EXAMPLES.glob("*/good*"))


def expected(path: Path) -> list[tuple[int, int]]:
    beside = path.with_name(path.name + ".expect")
    text = beside.read_text() if beside.exists() else path.read_text()
    return [(int(line), int(column)) for line, column in re.findall(r"expect: (\d+):(\d+)", text)]


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def facts_for(path: Path) -> dict[str, Any]:
    if ".node." in path.name:
        return {"node": WrittenNode(path.with_name("facts.toml"))}
    return {"aws": WrittenFacts(path.with_name("facts.toml"))} if ".aws." in path.name else {}


@pytest.mark.parametrize("path", BAD, ids=name)
def test_bad_example(path: Path) -> None:
    code = path.parent.name
    places = expected(path)
    assert places, f"{path} expects nothing"
    found = check([str(path)], Selection(select=(code,)), facts_for(path)).findings
    assert [(f.code, f.span.line, f.span.column) for f in found] == [(code, line, column) for line, column in places]


@pytest.mark.parametrize("path", GOOD, ids=name)
def test_good_example(path: Path) -> None:
    found = check([str(path)], facts=facts_for(path)).findings
    assert [(f.code, f.span.line, f.message) for f in found] == []


def test_every_rule_has_examples() -> None:
    """Each rule, and the AWS half of one that has two, fails somewhere and passes somewhere."""
    missing = []
    for rule in all_rules():
        names = [path.name for path in (EXAMPLES / rule.code).glob("*")]
        asked = [name for name in names if (".aws." in name) == (rule.needs == "aws")]
        if rule.needs != "node":
            missing += [f"{rule.code} ({rule.needs}): no {kind} example" for kind in ("bad", "good")
                        if not any(name.startswith(kind) for name in asked)]  # fmt: skip
    assert missing == []


def test_every_code_of_the_table_is_a_rule() -> None:
    table = Path(__file__).parent / "files" / "rule_codes.csv"
    wanted = {tuple(line.split(",")) for line in table.read_text().split()[1:]}
    have = {(rule.code, rule.level) for rule in all_rules()}
    assert wanted - have == set()


def test_every_page_has_all_its_parts() -> None:
    """What, why, fix, source, when it is right to ignore it, a bad and a good example; and no part is empty."""
    missing = []
    for rule in all_rules():
        text = rule.document
        for part in ("Why:", "Fix:", "Source:", "When to ignore:"):
            match = re.search(rf"^{part}(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
            if match is None or len(match[1].split()) < 2:
                missing.append(f"{rule.code} ({rule.needs}): {part}")
        why = re.search(r"^Why:(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
        if why is not None and not re.search(r"\d|\b(refuse|reject)", why[1]):
            missing.append(f"{rule.code} ({rule.needs}): no number in Why, and no refusal that needs none")
        page = (DOCS / f"{rule.code}.md").read_text()
        missing += [f"{rule.code}: {head}" for head in ("## Example", "## Use instead") if head not in page]
    assert missing == []
