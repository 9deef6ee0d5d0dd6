"""docs/frameworks.md: every framework, and every test case of the reference with the recipe that stands for it and how
that recipe was proven. A test states what it proves with `@pytest.mark.proves("recipe", …, "cpu")`, or with the kind
alone where a parameter `name` or `recipe` is the recipe's name. Tests are only collected here, not run."""

from __future__ import annotations

import csv

from collected_marks import ROOT, marks

from trainwright.recipes.framework import framework, frameworks
from trainwright.recipes.load import DEBUG, all_names, recipe
from trainwright.recipes.model import Foreign, Recipe

CASES = ROOT / "tests/recipes/reference_cases.csv"
MEASURED = ROOT / "benchmarks/data/frameworks.csv"
# Kinds of proof, the strongest first.
KINDS = {
    "h200": "trained on an H200",
    "cpu": "its debug size was trained on CPU by the tests",
    "parsed": "read by the framework's own parser",
    "options": "every option is one of the framework's table, with its type",
    "memory": "options only, and from memory: the table that judges them is not from the framework's source",
    "rendered": "rendered for every scheduler",
}


def frameworks_page() -> str:
    proofs = all_proofs()
    lines = [
        "# Frameworks", "",
        "Written from the recipes and the tests by `make docs`. Other trainers run through our own launch code:",
        "requeue, signals, health checks, logs, and a prediction beside the measurement. A framework is one data file",
        "(`recipes/frameworks/`), a recipe another one ([Recipes](recipes.md#another-trainer)).", "",
        *_frameworks_table(), "", "## The reference's test cases", "",
        "Each test case of AWS's reference collection, the recipe that stands for it, how it was proven, and what went",
        "wrong there that does not here.", "", *_cases_table(proofs), "", "How a recipe was proven:", "",
        *(f"- **{kind}**: {what}." for kind, what in KINDS.items()), "", "## All recipes of other frameworks", "",
        *_recipes_table(proofs), "", "## Trained here", "",
        "`python benchmarks/frameworks.py --write` trains these at their debug size: two CPU processes through",
        "`trainwright submit`, then ten steps more through `trainwright resume`. Seconds are wall time on two cores",
        "that were shared with other work. FSDP2, accelerate, Lightning and ZeRO 1 and 2 train one model on the same",
        "data: each must give the losses of one process (`tests/recipes/test_frameworks_train.py`).", "",
        *_measured_table(),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _frameworks_table() -> list[str]:
    lines = ["| framework | version | ranks are started by | image family | goes on after a requeue by |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name in frameworks():
        known = framework(name)
        start = {"rank": "the scheduler", "node": "its own launcher", "ray": "Ray"}.get(known.start, known.start)
        lines.append(
            f"| {known.title} (`{name}`) | {known.version} | {start} | {known.family} | {_cell(known.resume)} |"
        )
    return lines


def _cases_table(proofs: dict[str, set[str]]) -> list[str]:
    standing = by_case()
    lines = ["| test case | recipe | proven | does not have |", "| --- | --- | --- | --- |"]
    for case in cases():
        names = standing.get(case, [])
        proven = _sorted({kind for name in names for kind in proofs[name]})
        avoided = dict.fromkeys(text for name in names for text in recipe(name).avoids)
        recipes = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {case} | {recipes} | {', '.join(proven)} | {_cell('; '.join(avoided))} |")
    return lines


def _recipes_table(proofs: dict[str, set[str]]) -> list[str]:
    lines = ["| recipe | what | hardware | proven |", "| --- | --- | --- | --- |"]
    for name in all_names():
        this = recipe(name)
        if isinstance(this.trainer, Foreign):
            proven = _sorted(proofs[name])
            lines.append(f"| `{name}` | {_cell(this.title)} | {this.hardware} | {', '.join(proven)} |")
    return lines


def _measured_table() -> list[str]:
    lines = ["| framework | recipe | steps | from | to | went on after step | seconds | seconds of the rest | date |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with MEASURED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            lines.append(
                f"| {row['framework']} {row['version'].split()[-1]} | `{row['recipe']}-debug` | {row['steps']} "
                f"| {row['measure']} {row['first']} | {row['last']} | {row['resumed_after']} | {row['seconds']} "
                f"| {row['seconds_resumed']} | {row['date']} |"
            )
    return lines


def _sorted(kinds: set[str]) -> list[str]:
    """The strongest first; that it is rendered goes without saying where there is more."""
    return sorted(kinds - {"rendered"} or kinds, key=list(KINDS).index)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def cases() -> list[str]:
    with CASES.open(encoding="utf-8") as file:
        return [row["name"] for row in csv.DictReader(file)]


def by_case() -> dict[str, list[str]]:
    """Test case -> the recipes that stand for it."""
    standing: dict[str, list[str]] = {}
    for name in all_names():
        for case in recipe(name).reference:
            standing.setdefault(case, []).append(name)
    return standing


def all_proofs() -> dict[str, set[str]]:
    """Recipe -> the kinds of proof it has: those of the tests' marks, and what holds for every recipe."""
    proofs = {name: _without_marks(recipe(name)) for name in all_names()}
    for name, kinds in collect().items():
        proofs[name.removesuffix(DEBUG) if name not in proofs else name] |= set(kinds)
    return proofs


def _without_marks(this: Recipe) -> set[str]:
    if not isinstance(this.trainer, Foreign):
        return {"cpu"}  # tests/recipes/test_recipes_train.py trains each of ours
    known = this.trainer.known
    if known is None or not known.flags:
        return {"rendered"}
    return {"memory"} if known.options_from == "memory" else {"options"}


def collect() -> dict[str, list[str]]:
    """Recipe -> kinds of proof, from the tests' marks."""
    proven: dict[str, list[str]] = {}
    known = set(all_names())
    for mark in marks("proves"):
        *named, kind = mark.words
        for name in named or [mark.parameters.get("name") or mark.parameters.get("recipe") or ""]:
            if kind not in KINDS or not ({name, name.removesuffix(DEBUG)} & known):
                raise ValueError(f"{mark.test} proves {name!r} by {kind!r}: no such recipe or kind")
            proven.setdefault(name, []).append(kind)
    return proven
