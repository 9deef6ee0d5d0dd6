"""`trainwright advise`: the front of offers, the specs that it writes, and questions that have no answer."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from predict_commands import run

from trainwright.cli.advise import command as advise_command
from trainwright.cli.check import command as check_command
from trainwright.errors import UserError
from trainwright.predict.advice import NoOffer
from trainwright.train.models.shape import shapes


def test_advice_is_a_front_and_a_spec_that_loads(tmp_path: Path):
    from trainwright.jobs.resolve import resolve_job
    from trainwright.predict.job import predict_job
    from trainwright.spec.load import load

    path = tmp_path / "advised.yaml"
    words = ["--model", "llama3-8b", "--tokens", "1T", "--deadline", "30d", "--instances", "p5,p4d", "--nodes", "64"]
    out = run(*words, "--spec", str(path), of=advise_command).stdout
    assert "<- chosen" in out
    assert "why not the others" in out
    record = json.loads(run(*words, "--json", of=advise_command).stdout)
    days = [offer["days"] for offer in record["front"]]
    dollars = [offer["usd"] for offer in record["front"]]
    assert days == sorted(days)
    assert dollars == sorted(dollars, reverse=True)
    assert record["chosen"]["days"] <= 30
    assert record["spec"] == yaml.safe_load(path.read_text(encoding="utf-8"))
    again = predict_job(resolve_job(load(path)).require())
    assert again.tokens_per_s == pytest.approx(record["chosen"]["tokens_per_s"], rel=0.01)


def test_the_advised_spec_is_launched_as_it_was_advised(tmp_path: Path):
    """A plan that fits only with recomputation must say so to the trainer, or the job runs out of memory."""
    from trainwright.jobs.command import train_options
    from trainwright.jobs.resolve import resolve_job
    from trainwright.predict.job import predict_job
    from trainwright.spec.load import load

    path = tmp_path / "advised.yaml"
    words = ["--model", "llama3-70b", "--tokens", "1T", "--deadline", "30d", "--instances", "p5", "--nodes", "64"]
    chosen = json.loads(run(*words, "--json", "--spec", str(path), of=advise_command).stdout)["chosen"]
    assert chosen["recompute"] != "none"
    job = resolve_job(load(path)).require()
    again = predict_job(job)
    assert (again.recompute, again.fits) == (chosen["recompute"], "yes")
    assert again.tokens_per_s == pytest.approx(chosen["tokens_per_s"], rel=0.01)
    options = train_options(job, Path("code"))
    assert options[options.index("--recompute") + 1] == chosen["recompute"]


def test_a_deadline_that_cannot_be_met_names_what_can():
    with pytest.raises(UserError, match="no offer meets") as caught:
        CliRunner().invoke(
            advise_command,
            ["--model", "llama3-70b", "--tokens", "15T", "--deadline", "1h", "--nodes", "8", "--instances", "p5"],
            catch_exceptions=False,
        )  # fmt: skip
    assert "the fastest takes" in caught.value.fix
    assert caught.value.status == 1


def test_neuron_alone_is_refused_honestly():
    with pytest.raises(UserError, match="our trainer needs GPUs"):
        CliRunner().invoke(
            advise_command, ["--model", "llama3-8b", "--tokens", "1T", "--instances", "trn2"], catch_exceptions=False
        )


def python_seconds() -> float:
    """Processor time of a million turns of a plain loop: how fast Python is on this machine now."""
    import time

    start, total, sums = time.process_time(), 0, {}
    for turn in range(1_000_000):
        total += turn * turn % 7
        sums[turn & 1023] = total
    return time.process_time() - start


def test_a_hundred_thousand_candidates_are_searched_quickly():
    """The goal is 5 s for 100,000 on a fast core; machines differ, so the limit is 50 million turns of a loop."""
    import time

    from trainwright.catalog.models import model
    from trainwright.catalog.prices import KINDS
    from trainwright.predict.advice import advise
    from trainwright.predict.request import AdviceRequest

    ratios = []
    for _ in range(3):  # a neighbour on the machine slows one of the two down, now and then
        loop = python_seconds()
        start = time.process_time()
        advice = advise(AdviceRequest(model("llama3-70b"), 15e12, price_kinds=KINDS))
        seconds = time.process_time() - start
        assert advice.candidates >= 70_000
        ratios.append(seconds / advice.candidates * 100_000 / ((loop + python_seconds()) / 2))
        if ratios[-1] < 50:
            return
    pytest.fail(f"a hundred thousand candidates took {', '.join(f'{ratio:.0f}' for ratio in ratios)} turns, not 50")


def sampled_questions(seed: int, count: int) -> list[list[str]]:
    """Questions to `advise` for models that our trainer has: decoders, encoders, vision, T5; every way to buy."""
    rng = random.Random(seed)
    names = sorted(name for name, shape in shapes().items() if not shape.experts)
    return [
        [
            "--model", rng.choice(names), "--tokens", rng.choice(["90M", "300M", "20B", "1T"]),
            "--capacity", rng.choice(["on-demand", "spot", "capacity-block"]), "--nodes", rng.choice(["2", "4"]),
            "--instances", rng.choice(["p5en", "p5e,g6e.2xlarge", "p4d,p5en", "p5.4xlarge,p5e"]),
            "--precision", rng.choice(["bf16", "fp8"]), "--region", rng.choice(["us-east-1", "us-east-2", "us-west-2"]),
            "--platform", rng.choice(["parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks"]),
        ]
        for _ in range(count)
    ]  # fmt: skip


ADVICE = [
    ["--model", "llama3-8b", "--tokens", "20B", "--capacity", "spot", "--instances", "p5,p5en"],
    ["--model", "llama3-8b", "--tokens", "20B", "--capacity", "capacity-block", "--instances", "p5e,p5en"],
    ["--model", "llama3.1-405b", "--tokens", "20B", "--instances", "p5en", "--nodes", "64"],
    ["--model", "qwen3-4b", "--tokens", "300M", "--instances", "g5.48xlarge", "--nodes", "4"],  # 71.5 steps
    ["--model", "t5-v1.1-small", "--tokens", "1B", "--instances", "p5en", "--nodes", "2"],  # 6 heads of 64 in 512
    *sampled_questions(seed=16, count=6),
]


@pytest.mark.parametrize("words", ADVICE, ids=[f"{i}-{words[1]}" for i, words in enumerate(ADVICE)])
def test_advice_and_the_prediction_of_its_spec_agree(words, tmp_path: Path):
    spec = tmp_path / "advised.yaml"
    try:
        chosen = json.loads(run(*words, "--json", "--spec", str(spec), of=advise_command).stdout)["chosen"]
    except NoOffer:
        return  # no price there, or too large: an answer too
    findings = json.loads(CliRunner().invoke(check_command, [str(spec), "--format", "json"]).stdout)
    assert findings == []
    record = json.loads(run(str(spec), "--json").stdout)
    assert record["step_time_s"] == pytest.approx(chosen["step_time_s"], rel=1e-6)
    assert record["train_days"] == pytest.approx(chosen["days"], rel=0.005)
    assert record["train_usd"] == pytest.approx(chosen["usd"], rel=0.005)


def test_a_small_question_gets_a_small_machine():
    chosen = json.loads(run("--model", "llama3-8b", "--tokens", "100M", "--json", of=advise_command).stdout)["chosen"]
    assert chosen["nodes"] <= 2
    assert chosen["days"] > 900 / 86_400  # start-up counts


def test_a_deadline_is_met_by_the_upper_end_of_the_interval():
    words = ["--model", "llama3-8b", "--tokens", "1T", "--deadline", "20d", "--instances", "p5", "--json"]
    chosen = json.loads(run(*words, of=advise_command).stdout)["chosen"]
    assert chosen["days"] < chosen["latest_days"] <= 20


def test_a_mixture_of_experts_is_advised_without_a_spec(tmp_path: Path):
    words = ["--model", "mixtral-8x7b", "--tokens", "100B", "--instances", "p5", "--nodes", "16"]
    record = json.loads(run(*words, "--json", of=advise_command).stdout)
    assert record["spec"] is None
    with pytest.raises(UserError, match="mixture of experts"):
        CliRunner().invoke(advise_command, [*words, "--spec", str(tmp_path / "s.yaml")], catch_exceptions=False)


@pytest.mark.parametrize("platform", ["parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks"])
def test_the_advised_spec_of_a_platform_has_no_errors(platform: str, tmp_path: Path) -> None:
    from trainwright.check.gate import require_clean
    from trainwright.spec.load import load

    path = tmp_path / "spec.yaml"
    words = ["--model", "llama3-8b", "--tokens", "10B", "--instances", "p5", "--nodes", "8", "--platform", platform]
    run(*words, "--capacity", "on-demand,capacity-block,spot", "--spec", str(path), of=advise_command)
    loaded = load(path)
    require_clean(loaded)
    assert loaded.spec.platform == platform


def test_advise_names_the_platforms_it_writes() -> None:
    words = ["--model", "llama3-8b", "--tokens", "1B", "--platform", "hyperpods"]
    with pytest.raises(UserError, match="no spec is written for platform 'hyperpods'") as caught:
        CliRunner().invoke(advise_command, words, catch_exceptions=False)
    assert "hyperpod" in caught.value.fix
