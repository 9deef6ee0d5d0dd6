"""What-if and the picture of an advised training."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.predict.advice import advise, block_risk
from trainwright.predict.advice_explain import alternatives
from trainwright.predict.constants import constants
from trainwright.predict.request import AdviceRequest
from trainwright.predict.what_if import what_ifs
from trainwright.train.models.shape import shapes


@pytest.fixture(scope="module")
def request_of() -> AdviceRequest:
    return AdviceRequest(shapes()["llama3-8b"], 10**12, deadline_days=5.0, instances=("p5e",))


def test_each_difference_moves_what_it_should(request_of: AdviceRequest) -> None:
    chosen = advise(request_of).chosen
    as_is, slower, interrupted, dearer, cheaper = what_ifs(chosen, request_of)
    assert (as_is.days, as_is.usd) == pytest.approx((chosen.days, chosen.usd))
    assert slower.days == pytest.approx(as_is.days / 0.9, rel=0.01)
    assert as_is.days < interrupted.days < slower.days * 1.2
    assert dearer.days == as_is.days
    assert as_is.usd * 1.15 < dearer.usd < as_is.usd * 1.2 + 1
    assert cheaper.usd < as_is.usd < dearer.usd
    assert as_is.meets_deadline
    assert as_is.in_time is not None
    assert slower.in_time is not None
    assert 0.9 <= as_is.in_time < 1
    assert slower.in_time < as_is.in_time
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


def test_factors_of_an_alternative_multiply_to_what_it_loses(request_of: AdviceRequest) -> None:
    request = replace(request_of, tokens=3e11, instances=("p5", "p5e", "p4d"), max_nodes=16)
    advice = advise(request)
    others = alternatives(advice, request, constants())
    assert {other.offer.instance for other in others} >= {"p5.48xlarge", "p4d.24xlarge"}
    for other in others:
        assert prod(other.time.values()) == pytest.approx(other.offer.days / advice.chosen.days)
        assert prod(other.cost.values()) == pytest.approx(other.offer.usd / advice.chosen.usd)
        assert other.ruled_out or other.offer.latest_days <= 5.0
    assert any(other.terms for other in others)
    late = [other.offer for other in others if "within 5 days" in other.ruled_out]
    assert late
    assert all(offer.probability_within(5.0) < 0.9 for offer in late)
    assert advice.chosen.probability_within(advice.chosen.latest_days) == pytest.approx(0.9)


def test_several_questions_are_answered_in_one_table_and_one_picture(tmp_path: Path) -> None:
    words = ["advise", "--model", "llama3-8b", "--model", "nemotron4-15b", "--tokens", "30B,300B"]
    words += ["--deadline", "1d,10d", "--instances", "p5e", "--nodes", "8"]
    done = CliRunner().invoke(cli, [*words, "--json", "--svg", str(tmp_path / "f.svg")], catch_exceptions=False)
    answers = json.loads(done.stdout)["answers"]
    assert [(a["model"], a["tokens"], a["deadline_days"]) for a in answers][:3] == [
        ("llama3-8b", 30e9, 1.0), ("llama3-8b", 30e9, 10.0), ("llama3-8b", 300e9, 1.0)
    ]  # fmt: skip
    assert len(answers) == 8
    small, impossible = answers[1], answers[2]
    assert impossible["chosen"] is None
    assert "the fastest takes" in impossible["reason"]
    one = ["advise", "--model", "llama3-8b", "--tokens", "30B", "--deadline", "10d", *words[9:], "--json"]
    alone = CliRunner().invoke(cli, one, catch_exceptions=False)
    assert small["chosen"] == json.loads(alone.stdout)["chosen"]
    assert "llama3-8b 300B" in (tmp_path / "f.svg").read_text()


def test_what_is_for_one_question_is_refused_for_several(tmp_path: Path) -> None:
    words = ["advise", "--model", "llama3-8b", "--tokens", "30B,300B", "--spec", str(tmp_path / "a.yaml")]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UserError)
    assert "--spec is for one question" in str(done.exception)


def test_a_shape_that_is_only_published_is_advised_without_a_spec(tmp_path: Path) -> None:
    words = ["advise", "--model", "nemotron4-15b", "--tokens", "30B", "--instances", "p5e", "--nodes", "2"]
    done = CliRunner().invoke(cli, [*words, "--explain"], catch_exceptions=False)
    assert "no spec: nemotron4-15b is known by its published shape only" in done.stdout
    assert "x MFU" in done.stdout
    refused = CliRunner().invoke(cli, [*words, "--spec", str(tmp_path / "a.yaml")])
    assert isinstance(refused.exception, UserError)


def test_a_block_that_may_end_first_is_named(request_of: AdviceRequest) -> None:
    chosen = advise(replace(request_of, max_nodes=2, tokens=2e10, price_kinds=("capacity-block",))).chosen
    tight, ample = replace(chosen, days=0.98), replace(chosen, days=0.5)
    assert "a block of 1 d ends before the training with a probability of 4" in block_risk(tight)
    assert "buy 2 d" in block_risk(tight)
    assert block_risk(ample) == ""
    assert block_risk(replace(tight, kind="on-demand")) == ""
