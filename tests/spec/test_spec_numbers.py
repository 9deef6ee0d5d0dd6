"""Numbers of a spec that no job can have: refused where they are written, with the place and the range."""

from __future__ import annotations

import jsonschema
import pytest

from trainwright.recipes.model import Recipe
from trainwright.spec.load import load_text
from trainwright.spec.mistakes import SpecError
from trainwright.spec.schema import schema

SPEC = "name: c\nplatform: local\nqueues: [{name: q, nodes: 1, cpus: 1}]\njobs:\n- {name: j, %s}\n"
POSITIVE = "above 0"
REFUSED = [
    ("time: -5", POSITIVE),
    ("time: 0", POSITIVE),
    ("time: 0min", POSITIVE),
    ("time: 400d", "at most a year"),
    ("checkpoint: {every: 0}", POSITIVE),
    ("checkpoint: {every: -1}", POSITIVE),
    ("steps: 0", POSITIVE),
    ("steps: -3", POSITIVE),
    ("batch: {tokens: 0}", POSITIVE),
    ("batch: {tokens: -4}", POSITIVE),
    ("optimizer: {lr: 0}", "greater than 0"),
    ("optimizer: {lr: -1e-4}", "greater than 0"),
    ("optimizer: {lr: .inf}", "finite"),
    ("optimizer: {lr: .nan}", "finite"),
    ("optimizer: {warmup: -1}", "not be negative"),
    ("optimizer: {decay: -1}", "not be negative"),
    ("batch: {tokens: 1M, sequences: 4}", "one of tokens and sequences"),
    ("checkpoint: {every: 15min, steps: 10}", "one of every and steps"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_it_is_refused_with_its_line(words: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_text(SPEC % words, "spec.yaml")
    (mistake,) = caught.value.mistakes
    assert message in mistake.what
    assert mistake.span.line == 5


@pytest.mark.parametrize("words", ["time: 365d", "time: 0.5h", "optimizer: {warmup: 0, decay: 0}", "steps: 1"])
def test_what_is_in_range_loads(words: str) -> None:
    load_text(SPEC % words, "spec.yaml")


def test_sizes_are_above_zero() -> None:
    with pytest.raises(SpecError, match=POSITIVE):
        load_text("name: c\nplatform: local\nqueues: [{name: q, nodes: 1, root_volume: -5}]\n", "spec.yaml")


@pytest.mark.parametrize("steps", [0, -1])
def test_an_editor_marks_them_too(steps: int) -> None:
    job = {"name": "j", "steps": steps}
    spec = {"name": "c", "platform": "local", "queues": [{"name": "q"}], "jobs": [job]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec, schema())
    job["steps"] = 5
    jsonschema.validate(spec, schema())


def test_a_recipe_has_the_same_ranges() -> None:
    with pytest.raises(ValueError, match="finite"):
        Recipe.model_validate({"title": "t", "model": "m", "steps": 5, "optimizer": {"lr": float("inf")}})
    with pytest.raises(ValueError, match=POSITIVE):
        Recipe.model_validate({"title": "t", "model": "m", "steps": 0})
