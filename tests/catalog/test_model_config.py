"""A model by its config.json is predicted as one of the catalog; what would be predicted wrong is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trainwright.catalog.models import model as model_shape
from trainwright.cli.advise import command as advise_command
from trainwright.errors import UserError
from trainwright.predict import PredictRequest, predict
from trainwright.train.flops import flops_per_token
from trainwright.train.models.hf_config import config_of, shape_of
from trainwright.train.models.shape import lookup, parameter_count

# Qwen/Qwen2.5-72B, config.json; its card says 72.7 B parameters.
QWEN: dict[str, Any] = {
    "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 29568,
    "max_position_embeddings": 131072, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "sliding_window": 131072, "use_sliding_window": False, "tie_word_embeddings": False,
    "vocab_size": 152064,
}  # fmt: skip


def write(folder: Path, config: object) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder / "config.json")


@pytest.mark.parametrize("name", ["llama3-70b", "gpt2-1.5b", "mistral-7b"])
def test_it_is_predicted_as_the_catalogs(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, config_of(lookup(name), "bfloat16"))
    own, known = (
        predict(PredictRequest(model, "p5.48xlarge", 4, sequence=1024, batch_tokens=2**19)) for model in (path, name)
    )
    assert own.tokens_per_s == pytest.approx(known.tokens_per_s, rel=0.001)
    assert own.memory_gib == pytest.approx(known.memory_gib, rel=0.001)


def test_a_model_the_catalog_does_not_have(tmp_path: Path) -> None:
    shape = model_shape(write(tmp_path, QWEN))
    assert parameter_count(shape) == pytest.approx(72.7e9, rel=0.002)
    assert shape.window == 0
    assert model_shape(str(tmp_path)).hidden == 8192


def test_advice_for_it_is_a_spec(tmp_path: Path) -> None:
    words = [
        "--model",
        write(tmp_path, QWEN),
        "--tokens",
        "1T",
        "--instances",
        "p5",
        "--nodes",
        "16",
        "--sequence",
        "8192",
    ]
    done = CliRunner().invoke(advise_command, [*words, "--spec", str(tmp_path / "a.yaml")], catch_exceptions=False)
    assert done.exit_code == 0
    name = yaml.safe_load((tmp_path / "a.yaml").read_text())["name"]
    assert name.replace("-", "").isalnum()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**QWEN, "state_size": 128}, "only decoders"),
        ({"hidden_size": 8}, "has no 'num_hidden_layers'"),
        ([1], "not a JSON object"),
    ],
)
def test_what_would_be_predicted_wrong_is_refused(config: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        model_shape(write(tmp_path, config))
    with pytest.raises(UserError, match="No such file"):
        model_shape(str(tmp_path / "nowhere.json"))


def test_a_mixture_with_latent_attention_has_its_published_size(tmp_path: Path) -> None:
    """The config.json of DeepSeek-V3, as far as it concerns the shape."""
    config = {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    known = model_shape("deepseek-v3")
    shape = model_shape(str(path))
    assert parameter_count(shape) == parameter_count(known)
    assert flops_per_token(shape, 4096) == flops_per_token(known, 4096)


@pytest.mark.parametrize("name", ["t5-base", "esm2-650m", "vit-s-16", "gpt-oss-20b", "gemma2-9b"])
def test_what_the_trainer_reads_is_predicted_as_it_reads_it(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, config_of(lookup(name), "bfloat16"))
    assert replace(model_shape(path), name="") == replace(lookup(path), name="")


def test_a_shape_of_our_own_is_a_model_everywhere(tmp_path: Path) -> None:
    """The one of docs/train/models.md."""
    path = tmp_path / "mine.json"
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 160, "vocab": 512, "context": 256}
    path.write_text(json.dumps(sizes))
    assert replace(model_shape(str(path)), name="mine") == lookup(str(path))
    assert predict(PredictRequest(str(path), "p5.48xlarge", 1, sequence=256)).tokens_per_s > 0
    config = config_of(lookup(str(path)), "float32")
    assert shape_of(config, str(path)) == lookup(str(path))
    path.write_text(json.dumps({**sizes, "hidden": 32, "head_dim": 16}))
    with pytest.raises(UserError, match="hidden is 64, mine has 32"):
        shape_of(config, str(path))
    path.write_text(json.dumps({**sizes, "heigth": 3}))
    with pytest.raises(UserError, match="heigth"):
        model_shape(str(path))
