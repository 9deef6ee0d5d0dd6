"""Specs by chance: a plan or a refusal with a place, never a crash, and a plan holds together."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from judges.random_specs import random_spec
from trainwright.errors import UserError
from trainwright.platforms.plan.difference import difference, flatten
from trainwright.platforms.plan.tree import ClusterPlan, make_plan, record
from trainwright.report.picture import picture
from trainwright.spec.load import load
from trainwright.stacks.library import template
from trainwright.stacks.references import references

BATCH = 40


def attempt(path: Path) -> tuple[ClusterPlan | None, UserError | None]:
    try:
        return make_plan(load(path)), None
    except UserError as refusal:
        return None, refusal


@pytest.mark.parametrize("batch", range(5))
def test_a_spec_by_chance_is_planned_or_refused(batch: int, tmp_path: Path) -> None:
    planned = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(random_spec(seed), sort_keys=False))
        plan, refusal = attempt(path)
        if plan is None:
            assert refusal is not None
            assert "spec.yaml:" in refusal.where, f"seed {seed}: {refusal.what} has no place"
            continue
        planned += 1
        text = plan.files["cluster.yaml"]
        assert all(value is not None for value in flatten(yaml.safe_load(text)).values()), f"seed {seed}"
        outputs = {(stack.key, name) for stack in plan.stacks for name in template(stack.template).outputs}
        assert set(references(text)) <= outputs, f"seed {seed}"
        assert plan.bill.usd_hour_full >= plan.bill.usd_hour_idle >= 0
        ElementTree.fromstring(picture(plan))
        assert record(plan, plan.files)["cluster"]["name"] == f"chance-{seed}"
        assert difference(plan.files, plan.files).changes == ()
    assert planned > BATCH // 5
