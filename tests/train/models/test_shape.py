"""The shape table agrees with the parameter counts that were published, and every name resolves."""

from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.train.models.shape import (
    active_parameter_count,
    debug_sibling,
    lookup,
    parameter_count,
    shapes,
)

PUBLISHED_BILLIONS = {
    "gpt2-124m": 0.1244,
    "gpt2-1.5b": 1.558,
    "gpt3-1.7b": 1.652,
    "gpt3-18.4b": 18.45,
    "gpt3-145.6b": 145.6,
    "gpt3-310.1b": 310.1,
    "llama2-7b": 6.738,
    "llama2-70b": 68.98,
    "llama3.1-8b": 8.030,
    "llama3.1-405b": 405.85,
    "llama3.2-1b": 1.236,
    "llama3.2-3b": 3.213,
    "mistral-7b": 7.248,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-72b": 72.706,
    "qwen3-8b": 8.191,
    "qwen3-32b": 32.762,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.62,
    "qwen3-30b-a3b": 30.53,
    "qwen3-235b-a22b": 235.09,
    "gemma2-2b": 2.614,
    "gemma2-9b": 9.242,
    "gemma2-27b": 27.227,
    "gemma3-1b": 1.000,
    "gemma3-4b": 3.880,
    "gemma3-27b": 27.01,
    "olmo-2-7b": 7.299,
    "olmo-2-13b": 13.716,
    "olmo-2-32b": 32.234,
    "phi-3-mini": 3.821,
    "phi-3-medium": 13.960,
    "phi-4": 14.660,
    "pythia-1.4b": 1.4146,
    "pythia-6.9b": 6.857,
    "gpt-neox-20b": 20.555,
    "mistral-nemo-12b": 12.248,
    "mistral-small-24b": 23.572,
    "deepseek-v2-lite": 15.706,
    "deepseek-v3": 671.03,
    "kimi-k2": 1026.4,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "falcon-7b": 6.92,
    "falcon-40b": 41.30,
    "mpt-7b": 6.649,
    "mpt-30b": 29.96,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_parameter_count_is_the_published_one(name, billions):
    assert parameter_count(lookup(name)) / 1e9 == pytest.approx(billions, rel=1e-3)


def test_active_parameter_count():
    assert active_parameter_count(lookup("mixtral-8x7b")) / 1e9 == pytest.approx(12.88, rel=1e-3)


@pytest.mark.parametrize("name", shapes())
def test_every_shape_is_whole_and_has_a_debug_sibling(name):
    shape, small = lookup(name), lookup(name + "-debug")
    assert shape.source
    assert shape.heads % shape.kv_heads == 0
    assert small == debug_sibling(shape)
    assert parameter_count(small) < 10_000_000
    for feature in ("norm", "norm_bias", "position", "tied", "bias", "activation", "parallel_block", "router"):
        assert getattr(small, feature) == getattr(shape, feature)
    assert bool(small.experts) == bool(shape.experts)
    assert (small.kv_heads == small.heads) == (shape.kv_heads == shape.heads)


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UserError) as error:
        lookup("lama3-8b")
    assert "llama3-8b" in error.value.fix


DOCS = Path(__file__).parents[3] / "docs" / "train"


def test_the_table_of_models_names_every_family_of_decoders():
    rows = [line for line in (DOCS / "models.md").read_text().splitlines() if line.startswith("|")]
    families = {shape.family for shape in shapes().values() if shape.kind == "decoder"}
    named = {shape.family for name, shape in shapes().items() if any(f"`{name}`" in row for row in rows)}
    assert families - named == set()


def test_the_documents_name_the_axes_that_a_plan_has():
    plan = next(line for line in (DOCS / "index.md").read_text().splitlines() if line.startswith("| `--parallel"))
    for axis in ("replicate", "shard", "tp", "pp", "cp", "ep", "virtual"):
        assert f"`{axis}`" in plan
    assert "Plans: `shard`" not in (DOCS / "objectives.md").read_text(), (
        "parallelism.md says it, for every kind of model"
    )
