"""Every family of decoders, through the real loop: a run that is stopped by a signal and started again ends with the
weights of one that was not, bit for bit."""

from dataclasses import replace

import pytest
from single import corpus, events, interrupt_at, run, same, settings, weights

from trainwright.train.models.shape import shapes

FAST = ("mixtral", "deepseek_v3")
MODELS = {shape.family: f"{shape.name}-debug" for shape in reversed(shapes().values()) if shape.kind == "decoder"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.shows("resume")
@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[] if f in FAST else [pytest.mark.slow]) for f, m in MODELS.items()]
)
def test_a_stopped_run_ends_where_a_whole_one_does(model, data, tmp_path, monkeypatch):
    config = replace(settings(data, tmp_path / "run"), model=model, steps=5, checkpoint_every="2")
    _, whole = run(replace(config, folder=str(tmp_path / "whole")))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        assert run(config)[0] == 75
    status, resumed = run(config)
    assert status == 0
    assert events(config, "resume")[0]["step"] == 3
    assert same(weights(whole), weights(resumed))
