"""Context parallelism by gather, all-to-all and ring as the predictor, the advice and the check of a spec know it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.catalog.models import model
from trainwright.cli.check import command as check_command
from trainwright.errors import UserError
from trainwright.predict.constants import constants
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import memory
from trainwright.predict.request import PredictRequest
from trainwright.predict.search import contexts
from trainwright.predict.step import step_time
from trainwright.train.parallel.plan import CONTEXTS, ParallelPlan
from trainwright.train.parallel.traffic import context_traffic

PAGE = Path(__file__).parents[2] / "docs" / "train" / "parallelism.md"
LONG = PredictRequest("llama3.1-8b", "p5.48xlarge", 2, "cp=8", sequence=131_072, sequences=2, recompute="none")


def setups(request: PredictRequest) -> dict:
    return {context: lay_out(replace(request, context=context), constants()) for context in CONTEXTS}


def test_a_ring_keeps_no_keys_of_others():
    c, by = constants(), setups(LONG)
    used = {context: memory(s, c).activations for context, s in by.items()}
    blocks = by["gather"].shape.layers * 7 * by["ring"].traffic.kept
    passing = by["gather"].traffic.passing - by["ring"].traffic.passing
    assert used["gather"] - used["ring"] == pytest.approx(blocks + passing)
    assert used["ring"] < used["gather"]


def test_only_what_attention_does_not_cover_of_a_ring_is_waited_for():
    c, s = constants(), setups(LONG)["ring"]
    parts = step_time(s, c).parts
    assert parts["context parallel"] < 0.01 * parts["attention"]
    slow = replace(s.cluster, inside=replace(s.cluster.inside, rate=s.cluster.inside.rate / 300))
    layers = s.batch.count * s.shape.layers
    moving = 3 * s.traffic.forward / (slow.inside.rate * slow.inside.point_efficiency) * layers
    waited = step_time(replace(s, cluster=slow), c).parts["context parallel"]
    assert waited + parts["attention"] == pytest.approx(moving * (1 + c.overlap_contention), rel=0.05)
    gathered = setups(LONG)["gather"]
    assert step_time(gathered, c).parts["context parallel"] > parts["context parallel"]


def test_the_default_is_the_trainers():
    assert lay_out(LONG, constants()).context == "gather"
    assert lay_out(replace(LONG, trainer="megatron"), constants()).context == "ring"
    with pytest.raises(UserError, match="option of our trainer"):
        lay_out(replace(LONG, trainer="megatron", context="gather"), constants())
    with pytest.raises(UserError, match="8 key-value heads cannot be exchanged between 16 ranks"):
        lay_out(replace(LONG, plan="cp=16", context="all-to-all"), constants())


def test_the_table_of_the_page_is_computed():
    """Bytes per layer for Llama 3.1 8B, 131,072 tokens, as the page states them."""
    shape, rows = model("llama3.1-8b"), {}
    for cp in (2, 8):
        for context in CONTEXTS:
            t = context_traffic(context, shape, ParallelPlan(cp=cp), 131_072 / cp)
            rows[context, cp] = [f"{x / 2**20:,.0f}" for x in (t.forward, t.backward, t.kept, t.passing)]
    row = r"^\| `(gather|all-to-all|ring)` \| (\d) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$"
    stated = re.findall(row, PAGE.read_text(), re.M)
    assert {(context, int(cp)): numbers for context, cp, *numbers in stated} == rows


def test_every_way_that_can_work_is_tried_by_advice():
    trainer = lay_out(LONG, constants()).profile
    assert contexts(ParallelPlan(cp=8), model("llama3.1-8b"), trainer) == list(CONTEXTS)
    assert contexts(ParallelPlan(cp=2, tp=8), model("llama3.1-8b"), trainer) == ["gather", "ring"]
    assert contexts(ParallelPlan(tp=8), model("llama3.1-8b"), trainer) == ["ring"]


def test_a_spec_names_the_way_and_check_refuses_one_that_cannot_work(tmp_path):
    job = {"name": "long", "model": "llama3.1-8b", "queue": "train", "nodes": 2, "parallel": {"cp": 16}}
    job |= {"sequence": 131_072, "batch": {"sequences": 2}, "data": "/fsx/data"}
    spec = {"name": "long", "platform": "parallelcluster", "region": "us-east-1", "jobs": [job]}
    spec["queues"] = [{"name": "train", "instance": "p5.48xlarge", "count": 2}]
    outputs = {}
    for context in ("ring", "all-to-all"):
        job["args"] = ["--context", context]
        (tmp_path / f"{context}.yaml").write_text(yaml.safe_dump(spec))
        outputs[context] = CliRunner().invoke(check_command, [str(tmp_path / f"{context}.yaml")]).output
    refused = "8 key-value heads cannot be exchanged between 16 ranks (tp x cp)"
    assert refused in outputs["all-to-all"]
    assert refused not in outputs["ring"]
