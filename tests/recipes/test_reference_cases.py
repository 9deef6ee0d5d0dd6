"""No test case of the reference is without a recipe, and a recipe names only cases that exist."""

from __future__ import annotations

import csv
from pathlib import Path

from trainwright.recipes.load import all_names, recipe

CASES = Path(__file__).with_name("reference_cases.csv")


def test_every_case_of_the_reference_has_a_recipe() -> None:
    with CASES.open(encoding="utf-8") as file:
        cases = {row["name"] for row in csv.DictReader(file)}
    assert len(cases) == 67
    standing = {case for name in all_names() for case in recipe(name).reference}
    assert cases - standing == set(), "without a recipe"
    assert standing - cases == set(), "no such case"


def test_a_recipe_of_the_reference_says_which_mistake_it_does_not_have() -> None:
    silent = [name for name in all_names() if recipe(name).reference and not recipe(name).avoids]
    assert silent == []
