"""Configs of Hugging Face: every key is honoured, harmless or refused by name; transformers judges what is accepted."""

import json
import random

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from trainwright.errors import UserError
from trainwright.train.models import huggingface
from trainwright.train.models.attention import TokenLayout, attention_mask
from trainwright.train.models.decoder import Decoder, ForwardInputs
from trainwright.train.models.hf_config import config_of, shape_from_config, shape_of
from trainwright.train.models.hf_decoders import DECODERS
from trainwright.train.models.hf_families import DENSE
from trainwright.train.models.hf_moe import MIXTURES
from trainwright.train.models.rotary import rotary_cos_sin
from trainwright.train.models.shape import lookup, parameter_count

FAMILIES = (*DENSE, *DECODERS, *MIXTURES)
LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 5e5,
}  # fmt: skip
LINEAR_ROPE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
GPT_OSS_ROPE = {
    "rope_type": "yarn", "factor": 5.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False, "rope_theta": 1.5e4,
    "original_max_position_embeddings": 32,
}  # fmt: skip
ROPES = [{"rope_type": "default", "rope_theta": 1e4}, LINEAR_ROPE, LLAMA3_ROPE]


def odd_shape(kind: str, seed: int) -> dict:
    """A random small config with sizes that no published model has."""
    dice = random.Random(f"{kind}{seed}")
    kv, group, width = dice.choice([1, 2, 3]), dice.choice([1, 2, 3]), 2 * dice.randint(3, 9)
    heads, layers, vocab = kv * group, dice.randint(1, 3), dice.randint(50, 300)
    hidden = heads * width
    if kind == "gpt2":
        return {"n_embd": hidden, "n_head": heads, "n_layer": layers, "n_positions": 64, "vocab_size": vocab,
                "n_inner": dice.choice([None, 3 * hidden]),
                "activation_function": dice.choice(["gelu_new", "gelu", "relu"]),
                "tie_word_embeddings": dice.random() < 0.5}  # fmt: skip
    if kind == "mpt":
        return {"d_model": hidden, "n_heads": heads, "n_layers": layers, "max_seq_len": 64, "vocab_size": vocab,
                "expansion_ratio": 4}  # fmt: skip
    common = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers, "vocab_size": vocab,
              "max_position_embeddings": 64, "tie_word_embeddings": dice.random() < 0.5}  # fmt: skip
    if kind == "falcon":
        newer = dice.random() < 0.5
        return {**common, "num_kv_heads": kv if newer else heads, "new_decoder_architecture": newer,
                "multi_query": dice.random() < 0.5,
                "bias": dice.random() < 0.5, "ffn_hidden_size": 3 * hidden}  # fmt: skip
    if kind == "gpt_neox":
        rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": odd_share(dice, width)}
        return {**common, "intermediate_size": dice.randint(20, 90), "use_parallel_residual": dice.random() < 0.5,
                "attention_bias": dice.random() < 0.5, "hidden_act": dice.choice(["gelu", "gelu_new", "relu"]),
                "rope_parameters": rope}  # fmt: skip
    config = {**common, "num_key_value_heads": kv, "intermediate_size": dice.randint(20, 90),
              "rope_parameters": dice.choice(ROPES)}  # fmt: skip
    if kind not in ("qwen2", "olmo2", "phi3", "deepseek_v2", "deepseek_v3"):
        config["head_dim"] = 2 * dice.randint(3, 9)
    if kind in ("llama", "qwen3", "qwen3_moe", "olmo2", "gemma2", "gemma3_text", "gpt_oss"):
        config["attention_bias"] = dice.random() < 0.5
    if kind == "llama":
        config["mlp_bias"] = dice.random() < 0.5
    if kind in ("mistral", "mixtral"):
        config["sliding_window"] = dice.choice([None, 7])
    if kind in ("mixtral", "gpt_oss") or "_moe" in kind or "deepseek" in kind:
        config |= odd_experts(kind, dice, layers, heads)
    if kind == "gpt_oss":
        config |= {"sliding_window": 7, "rope_parameters": dice.choice([*ROPES, GPT_OSS_ROPE])}
    if kind.startswith("gemma"):
        config |= {"query_pre_attn_scalar": dice.randint(5, 40), "sliding_window": 7,
                   "attn_logit_softcapping": dice.choice([None, 2.0]) if kind == "gemma2" else None,
                   "final_logit_softcapping": dice.choice([None, 3.0])}  # fmt: skip
    if kind == "gemma3_text":
        every = dice.randint(1, layers)
        full = {"rope_type": "default", "rope_theta": 3e5}
        config |= {"layer_types": ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)],
                   "rope_parameters": {"full_attention": dice.choice([full, LINEAR_ROPE]),
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}}  # fmt: skip
    if kind == "phi3":
        rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": odd_share(dice, width)}
        config |= {"sliding_window": dice.choice([None, 7]), "pad_token_id": None, "rope_parameters": rope}
    return config


def odd_share(dice: random.Random, width: int) -> float:
    return dice.choice([0.5, 1.0]) if width % 4 == 0 else 1.0


def odd_experts(kind: str, dice: random.Random, layers: int, heads: int) -> dict:
    experts = dice.randint(2, 9)
    few = {"num_experts_per_tok": dice.randint(1, experts)}
    if kind in ("mixtral", "gpt_oss"):
        return {**few, "num_local_experts": experts}
    wide = {"moe_intermediate_size": dice.randint(9, 40)}
    if kind == "qwen3_moe":
        return {**few, **wide, "num_experts": experts, "norm_topk_prob": dice.random() < 0.5,
                "mlp_only_layers": list(range(dice.randint(0, layers - 1)))}  # fmt: skip
    groups, size = dice.choice([(1, 1), (3, 2)]), dice.randint(2, 4)
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7,
            "mscale_all_dim": 0.9, "original_max_position_embeddings": 16}  # fmt: skip
    own = {"n_routed_experts": groups[0] * size, "num_experts_per_tok": dice.randint(1, 2 * groups[1] - 1), **wide,
           "n_group": groups[0], "topk_group": groups[1], "n_shared_experts": dice.randint(1, 2),
           "first_k_dense_replace": dice.randint(0, layers - 1), "q_lora_rank": dice.choice([None, 11]),
           "kv_lora_rank": 2 * dice.randint(3, 9), "qk_nope_head_dim": 2 * dice.randint(2, 5),
           "v_head_dim": dice.randint(3, 9),
           "qk_rope_head_dim": 2 * dice.randint(1, 4), "routed_scaling_factor": 1.7, "num_key_value_heads": heads,
           "attention_bias": dice.random() < 0.5,
           "rope_parameters": dice.choice([yarn, {"rope_type": "default", "rope_theta": 1e4}])}  # fmt: skip
    if kind == "deepseek_v2":
        return {**own, "topk_method": dice.choice(["greedy", "group_limited_greedy"])}
    return {**own, "norm_topk_prob": dice.random() < 0.5, "rope_interleave": dice.random() < 0.5}


def random_transformer(config: transformers.PretrainedConfig) -> torch.nn.Module:
    torch.manual_seed(1)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn_like(param), alpha=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer))
    return model


@pytest.mark.shows("parity", "export")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_config_gives_the_logits_of_transformers_and_comes_back(kind, seed, tmp_path):
    theirs = random_transformer(CONFIG_MAPPING[kind](**odd_shape(kind, seed)))
    theirs.save_pretrained(tmp_path / "hf")
    shape, read = huggingface.read_folder(tmp_path / "hf")
    model = Decoder(shape)
    with torch.no_grad():
        for name, param in (*model.named_parameters(), *model.named_buffers()):
            param.copy_(read(name))
    assert sum(p.numel() for p in model.parameters()) == parameter_count(shape)
    tokens = torch.randint(0, shape.vocab, (2, 23))
    index = torch.arange(23)
    positions = index.expand_as(tokens)
    cos_sin = rotary_cos_sin(shape, positions) if shape.position == "rope" else None
    mask = attention_mask(shape, TokenLayout(index, index, None, None), True, slice(0, shape.heads))
    with torch.no_grad():
        right = theirs(tokens).logits
        assert float((model(tokens, ForwardInputs(positions, cos_sin, mask)) - right).abs().max()) < 1e-5 * max(
            1.0, float(right.abs().max())
        )
    huggingface.write_folder(shape, read, tmp_path / "again")
    eager = {"attn_implementation": "eager"} | ({"experts_implementation": "eager"} if shape.experts else {})
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again", **eager).eval()
    with torch.no_grad():
        assert torch.allclose(again(tokens).logits, right, atol=1e-5)
    assert shape_of(json.loads((tmp_path / "again" / "config.json").read_text()), "").vocab == shape.vocab


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_defaults_of_transformers_are_understood(kind):
    config = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
    assert shape_from_config(config, "m", "config.json").layers > 1


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("mpt", {"attn_config": {"clip_qkv": 6}}, r"attn_config\.clip_qkv = 6 is not supported"),
        ("mpt", {"attn_config": {"qk_ln": True}}, r"attn_config\.qk_ln"),
        ("mpt", {"expansion_ratio": 3}, "expansion_ratio = 3 is not supported, only 4"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale = 0.5 is not supported"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not supported"),
        ("gpt2", {"activation_function": "silu"}, "activation_function = 'silu'"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported, only 'silu'"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling of type 'yarn'"),
        ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("llama", {"residual_multiplier": 0.2}, "unknown key 'residual_multiplier'"),
        ("llama", {"quantization_config": {"bits": 4}}, "unknown key 'quantization_config'"),
        ("falcon", {"alibi": True}, "alibi = True is not supported"),
        ("falcon", {"parallel_attn": False}, "parallel_attn = False"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window = True"),
        ("qwen3", {"layer_types": ["sliding_attention"]}, "layer_types"),
    ],
)
def test_what_the_decoder_does_not_compute_is_refused_by_name(kind, change, message):
    with pytest.raises(UserError, match=message):
        shape_from_config({"model_type": kind, **odd_shape(kind, 0), **change}, "m", "config.json")


def test_an_unknown_model_type_names_itself_and_what_there_is():
    with pytest.raises(UserError, match="model type 'mamba' is not supported") as caught:
        shape_of({"model_type": "mamba"}, "")
    assert "llama" in caught.value.fix
    assert "mistral" in caught.value.fix


def test_a_model_is_a_file(tmp_path):
    config = config_of(lookup("llama3-8b-debug"), "float32")
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 777}))
    shape = lookup(str(tmp_path))
    assert (shape.name, shape.vocab, shape.hidden) == (tmp_path.name, 777, 128)
    own = tmp_path / "mine.json"
    own.write_text(json.dumps({"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 300, "context": 64}))
    assert lookup(str(own)).name == "mine"
    own.write_text(json.dumps({"layers": 2, "hidden": 32, "height": 4}))
    with pytest.raises(UserError, match="no field 'height'"):
        lookup(str(own))
