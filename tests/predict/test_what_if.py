"""What-if and the picture of an advised training."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.predict.advice import advise
from trainwright.predict.request import AdviceRequest
from trainwright.predict.what_if import what_ifs
from trainwright.train.models.shape import shapes


@pytest.fixture(scope="module")
def request_of() -> AdviceRequest:
    return AdviceRequest(shapes()["llama3-8b"], 10**12, deadline_days=5.0, instances=("p5e",))


def test_each_difference_moves_what_it_should(request_of: AdviceRequest) -> None:
    chosen = advise(request_of).chosen
    as_is, slower, interrupted, dearer = what_ifs(chosen, request_of)
    assert (as_is.days, as_is.usd) == pytest.approx((chosen.days, chosen.usd))
    assert slower.days == pytest.approx(as_is.days / 0.9, rel=0.01)
    assert as_is.days < interrupted.days < slower.days * 1.2
    assert dearer.days == as_is.days
    assert as_is.usd * 1.15 < dearer.usd < as_is.usd * 1.2 + 1
    assert as_is.meets_deadline
    assert {row.meets_deadline for row in what_ifs(chosen, AdviceRequest(request_of.shape, 10**12))} == {None}


def test_the_command_prints_and_draws_it(tmp_path: Path) -> None:
    words = ["advise", "--model", "llama3-8b", "--tokens", "1T", "--instances", "p5e", "--nodes", "16", "--what-if"]
    done = CliRunner().invoke(cli, [*words, "--svg", str(tmp_path / "f.svg")], catch_exceptions=False)
    assert "10% lower MFU" in done.stdout
    drawn = ElementTree.parse(tmp_path / "f.svg").getroot()
    texts = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"days", "dollars", "p5e.48xlarge"} <= set(texts)
    rows = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)["what_if"]
    assert rows[0]["name"] == "as predicted"


def test_advice_names_the_zones_and_stays_within_what_is_sold_at_once():
    words = ["advise", "--model", "llama3-8b", "--tokens", "1T", "--instances", "p5", "--json"]
    record = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    assert max(offer["nodes"] for offer in record["front"]) <= 64
    assert all(zone.startswith("use1-az") for zone in record["zones"])
    assert record["zones"]
