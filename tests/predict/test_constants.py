"""The constants are few, physical and documented; none is keyed by a source, a model or a row."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.predict.constants import Traffic, constants, scalar_names, table
from trainwright.predict.profiles import Profile, profiles
from trainwright.train.models.shape import shapes

DATA = Path(__file__).parents[2] / "benchmarks" / "data"


def keys(tree: dict[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        yield key
        if isinstance(value, dict):
            yield from keys(value)


def forbidden_words() -> set[str]:
    """Names of sources, models and rows, as they stand in the published tables."""
    found = set(shapes())
    for name in ("published_training.csv", "published_collectives.csv"):
        with open(DATA / name, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                source = row.get("source_repo_or_doc") or row.get("source") or ""
                found |= {row["id"].lower(), row["id"].rsplit("-", 1)[0].lower()}
                found |= {w.lower() for w in re.findall(r"[A-Za-z][\w-]{4,}", source)}
                if row.get("model"):
                    found.add(row["model"].lower())
    return found - {"table", "attention", "flash", "flash-attention", "training", "paper"}


def test_no_constant_is_keyed_by_a_source_a_model_or_a_row():
    words = forbidden_words()
    assert "mosaicml" in words  # the list is real
    for key in keys(table()):
        assert key.lower() not in words
        assert not any(word in key.lower() for word in words if len(word) > 6), key


@pytest.mark.parametrize("name", scalar_names())
def test_every_constant_says_what_it_is_and_where_it_comes_from(name):
    entry = table()[name]
    assert isinstance(entry["value"], float | int)
    assert entry["why"]
    assert re.match(r"(operators|collectives|training|paper)", entry["from"])
    assert "unit" in entry


def test_the_constants_are_few():
    assert len(scalar_names()) <= 38
    fitted = [k for k, v in table().items() if isinstance(v, dict) and str(v.get("from", "")).startswith("training")]
    assert len(fitted) <= 24


BYTES = ("grad_bytes", "state_bytes", "alone_bytes", "fp8_bytes", "resident", "around", "around_layernorm")
DATES = ("released",)


def test_profiles_hold_switches_and_bytes_not_factors():
    """A profile may name a kernel, flip a switch or count bytes; a speed factor in one would be a hidden constant."""
    for profile in profiles().values():
        for field in dataclasses.fields(Profile):
            value = getattr(profile, field.name)
            assert isinstance(value, str | bool) or field.name in (*BYTES, *DATES), field.name
        assert profile.fusion in constants().traffic
        assert profile.loss_fusion in constants().traffic
        assert profile.data in ("fsdp", "zero1")


def test_traffic_grows_as_fusion_falls():
    eager, compiled = constants().traffic["eager"], constants().traffic["compiled"]
    for field in dataclasses.fields(Traffic):
        assert sum(getattr(eager, field.name)) >= sum(getattr(compiled, field.name))


def test_unused_entries_are_refused():
    assert set(table()) == {*scalar_names(), "traffic", "attention"}
