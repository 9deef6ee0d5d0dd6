"""One job, one truth: over specs by chance, check, predict, plan and submit agree. What one of them refuses, `check`
reports, at the same place; what `check` passes, the others accept, with the same nodes, ranks, plan and batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from random_jobs import random_training_spec

from trainwright.check.engine import check
from trainwright.check.finding import Finding
from trainwright.check.gate import CheckFailed, check_loaded
from trainwright.errors import UserError
from trainwright.jobs.resolved import ResolvedJob
from trainwright.platforms.plan.tree import PLANNED, make_plan
from trainwright.predict.job import predict_job
from trainwright.runs.request import SubmitRequest, order_for, requested_spec
from trainwright.runs.submission import Planned, plan
from trainwright.spec.load import LoadedSpec, load
from trainwright.train.config import parse_arguments
from trainwright.train.parallel.plan import complete, parse_axes

PER_TEST = 100
Place = tuple[str, int, int, str]


def places(findings: list[Finding]) -> set[Place]:
    return {(f.code, f.span.line, f.span.column, f.message) for f in findings if f.level == "error"}


@pytest.mark.parametrize("batch", range(5))
def test_the_verbs_agree(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agreed(range(batch * PER_TEST, (batch + 1) * PER_TEST), tmp_path, monkeypatch) >= PER_TEST // 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [range(1000, 1200), pytest.param(range(1200, 4000), marks=pytest.mark.long)], ids=str)
def test_the_verbs_agree_on_thousands(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agreed(seeds, tmp_path, monkeypatch) > len(seeds) // 10


def agreed(seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many jobs were accepted by every verb; anything the verbs disagree about fails."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(folder / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    (folder / "train.py").write_text("print(1)\n")
    accepted = 0
    for seed in seeds:
        path = folder / "spec.yaml"
        path.write_text(yaml.safe_dump(random_training_spec(seed), sort_keys=False))
        found = check([str(path)]).findings
        loaded = load(path)
        assert places(found) == places(check_loaded(loaded).findings), f"seed {seed}: check of the file and of the spec"
        _check_plan(seed, loaded, places(found))
        for job in loaded.spec.jobs:
            accepted += _check_job(f"seed {seed}, {job.name}", path, job.name, places(found))
    return accepted


def _check_plan(seed: int, loaded: LoadedSpec, errors: set[Place]) -> None:
    if loaded.spec.platform not in PLANNED:
        return
    if errors:
        with pytest.raises(CheckFailed) as refused:
            make_plan(loaded)
        assert places(refused.value.result.findings) == errors, f"seed {seed}"
        return
    made = make_plan(loaded)
    assert [job.name for job in made.jobs] == [job.name for job in loaded.spec.jobs]


def _check_job(name: str, path: Path, job: str, errors: set[Place]) -> bool:
    request = SubmitRequest(spec=str(path), job=job, dry=True)
    mine = places(check_loaded(requested_spec(request)).findings)
    assert mine <= errors, f"{name}: submit reports what check does not: {mine - errors}"
    if mine:
        with pytest.raises(CheckFailed):
            order_for(request)
        return False
    order = order_for(request)
    planned = plan(order)
    assert not [e for e in errors if e[0].startswith("SPC") and f"'{job}'" in e[3]], f"{name}: submit accepts it"
    _check_launch(name, order.job, planned)
    _check_prediction(name, order.job)
    return True


def _check_launch(name: str, job: ResolvedJob, planned: Planned) -> None:
    launch = planned.launch
    at = job.placement
    assert (launch.queue, launch.nodes, launch.ranks) == (at.queue.name, at.nodes, job.ranks), name
    assert planned.run.ranks == job.ranks
    if job.trainer != "trainwright" or job.training is None:
        return
    words = list(launch.command[launch.command.index("trainwright.train") + 1 :])
    config = parse_arguments(words)
    training = job.training
    plan_ = complete(parse_axes(config.parallel), job.ranks)
    assert plan_ is not None
    assert (plan_, config.batch, config.sequence) == (training.plan, training.batch, training.sequence), name
    assert (config.steps if training.steps else None, config.recompute) == (training.steps, training.recompute), name
    assert training.micro_batch in (None, config.micro_batch), name
    plan_.check(training.shape, job.ranks, config.sequence, config.batch)  # type: ignore[arg-type]


def _check_prediction(name: str, job: ResolvedJob) -> None:
    if job.placement.queue.instance is None:
        return  # on this machine a prediction is a measurement
    at, training = job.placement.instance, job.training
    if training is None or training.shape is None or at is None or not at.accelerator_count:
        with pytest.raises(UserError):
            predict_job(job)
        return
    said = predict_job(job)
    assert (said.nodes, said.gpus, said.plan) == (job.placement.nodes, job.ranks, str(training.plan)), name
    assert (said.tokens_per_step, said.sequence) == (training.tokens_per_step, training.sequence), name
    assert training.micro_batch in (None, said.micro_batch), name
