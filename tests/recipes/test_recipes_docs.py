"""The page on recipes says of every field what the model says, and the files it shows are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from trainwright.jobs.foreign import KNOWN
from trainwright.recipes.model import Foreign, Optimization, Recipe, Spread
from trainwright.spec.job import Batch, Checkpoint
from trainwright.spec.model import Spec
from trainwright.spec.part import Part

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TABLES: dict[str, type[Part]] = {
    "fields": Recipe, "parallel": Spread, "batch": Batch, "optimizer": Optimization, "checkpoint": Checkpoint,
    "trainer": Foreign,
}  # fmt: skip


def table(part: type[Part]) -> str:
    """The fields of a part, with what is taken where nothing is written."""
    lines = ["| field | default | what it is |", "| --- | --- | --- |"]
    for name, field in part.model_fields.items():
        plain = isinstance(field.default, str | int | float | tuple) and field.default not in ("", ())
        default = "required" if field.is_required() else f"`{field.default}`" if plain else ""
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines)


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_the_models_own(name: str, request: pytest.FixtureRequest) -> None:
    table_on_page = re.compile(rf"(<!-- {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(table_on_page.sub(lambda place: place[1] + table(TABLES[name]), PAGE.read_text()))
    text = table_on_page.search(PAGE.read_text())
    assert text is not None
    assert text[0].partition("\n\n")[2] == table(TABLES[name])


def test_every_placeholder_of_a_command_is_documented() -> None:
    page = PAGE.read_text()
    assert {place for place in KNOWN if f"`{{{place}}}`" not in page} == set()


def shown(page: Path) -> list[dict[str, object]]:
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)]


def test_the_recipes_it_shows_are_recipes() -> None:
    assert [Recipe.model_validate(block).title for block in shown(PAGE)]


@pytest.mark.parametrize("name", ["kubernetes", "batch"])
def test_the_parts_of_specs_it_shows_are_read(name: str) -> None:
    [block] = shown(PAGE.parent / "run" / f"{name}.md")
    spec = Spec.model_validate({"name": "x", "queues": [{"name": "train", "instance": "p5.48xlarge"}], **block})
    assert spec.jobs[0].secrets
