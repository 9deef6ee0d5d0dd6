"""The table of model families in docs/train/families.md: a tick stands only where a test stands. A test states what it
shows with `@pytest.mark.shows("parity", "export")`; its families are those of its parameter `kind`, `family` or
`model`, or the ones that the mark names: `families=("mixtral", ...)`. Tests are only collected here, not run."""

from __future__ import annotations

from collected_marks import Mark, marks

from trainwright.train.models.shape import is_published, lookup

COLUMNS = {
    "parity": "logits (or outputs) and, where trained, gradients equal those of an independent implementation",
    "export": "weights are written for that implementation and read back without a change",
    "curve": "the loss of every step equals that of that implementation, same data and same optimizer",
    "plans": "every parallel plan gives the loss curve of one process",
    "resume": "a stopped run ends with the weights of one that was not stopped, bit for bit",
    "predict": "the predictor knows the published shapes, with the trainer's parameters",
}
PARAMETERS = ("family", "kind", "model", "name")  # of a test, that may name its family


def families_page() -> str:
    shown = collect()
    lines = [
        "# Model families", "", "Written from the tests by `make docs`: a tick stands only where a test stands.", "",
        f"| family | {' | '.join(COLUMNS)} |", f"| --- | {' | '.join('---' for _ in COLUMNS)} |",
    ]  # fmt: skip
    for family in sorted(shown):
        ticks = ["✓" if column in shown[family] else "" for column in COLUMNS]
        lines.append(f"| {family} | {' | '.join(ticks)} |")
    lines += ["", *(f"- **{column}**: {what}." for column, what in COLUMNS.items())]
    return "\n".join(lines) + "\n"


def collect() -> dict[str, dict[str, list[str]]]:
    """Family -> column -> tests, from the tests' marks."""
    shown: dict[str, dict[str, list[str]]] = {}
    for mark in marks("shows"):
        for family in _families(mark):
            for column in mark.words:
                if column not in COLUMNS:
                    raise ValueError(f"{mark.test} shows {column!r}; the columns are {', '.join(COLUMNS)}")
                shown.setdefault(family, {}).setdefault(column, []).append(mark.test)
    return shown


def _families(mark: Mark) -> list[str]:
    """The families that the mark names, or the one of the test's parameter: a family, a model, or a word of its own."""
    if "families" in mark.options:
        return mark.options["families"]
    word = next((mark.parameters[name] for name in PARAMETERS if name in mark.parameters), "")
    if not word:
        raise ValueError(f"{mark.test} names no family: a parameter `family`, `kind` or `model`, or families=(...)")
    return [lookup(word).family if is_published(word) else word]
