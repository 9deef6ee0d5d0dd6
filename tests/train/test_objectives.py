"""What the control side knows of an objective without torch is what the objective says of itself."""

from __future__ import annotations

import importlib

import pytest

from trainwright.errors import UserError
from trainwright.train.models.shape import shapes
from trainwright.train.objectives import kinds_of, name_for, names


@pytest.mark.parametrize("name", names())
def test_kinds_are_read_as_they_are_meant(name: str) -> None:
    module = importlib.import_module(f"trainwright.train.objectives.{name}")
    assert kinds_of(name) == module.OBJECTIVE.kinds != ()


def test_an_objective_for_another_kind_of_model_is_refused() -> None:
    with pytest.raises(UserError, match="trains models of kind vision, and llama3-8b is of kind decoder") as caught:
        name_for("dino", shapes()["llama3-8b"])
    assert caught.value.fix == "objective causal_lm"
