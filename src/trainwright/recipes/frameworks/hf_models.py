"""Models and tokenizers of Hugging Face by name. NAME-debug has the family's architecture, a few small layers, random
weights, and one token per byte: it needs no network."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from entry_common import DEBUG, TokenShards, is_prepared, rows

SMALL = {
    "vocab_size": 384, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 1024,
}  # fmt: skip


def is_debug(name: str) -> bool:
    return name.endswith(DEBUG)


def debug_config(name: str, **changes: Any) -> Any:
    """The configuration of a family (llama, qwen2, qwen3, esm, ...) at a size for a laptop."""
    from transformers import AutoConfig

    family = name.removesuffix(DEBUG)
    sizes = {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, **changes}
    if family != "esm":
        sizes["num_key_value_heads"] = 2
    return AutoConfig.for_model(family, **sizes)


def causal_model(name: str, bits: int = 16) -> Any:
    """A model that predicts the next token, with its published weights; in 8 or 4 bits by bitsandbytes, on a GPU."""
    import torch
    from transformers import AutoModelForCausalLM

    if is_debug(name):
        torch.manual_seed(0)  # the same weights on every rank and after every restart
        return AutoModelForCausalLM.from_config(debug_config(name))
    if bits == 16:
        return AutoModelForCausalLM.from_pretrained(name, dtype="auto")
    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available() or find_spec("bitsandbytes") is None:
        raise SystemExit(f"--base-bits {bits} needs a GPU and the package bitsandbytes in the image")
    four = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16}
    codes = BitsAndBytesConfig(load_in_4bit=True, **four) if bits == 4 else BitsAndBytesConfig(load_in_8bit=True)
    here = {"": int(os.environ.get("LOCAL_RANK", "0"))}  # weights as codes are loaded onto the rank's own GPU
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, quantization_config=codes, device_map=here)


def new_model(given: argparse.Namespace) -> Any:
    """A model that predicts the next token, with random weights: for pretraining."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(given.seed)  # the same weights on every rank and after every restart
    config = debug_config(given.model) if is_debug(given.model) else AutoConfig.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_config(config)
    if given.recompute == "full":
        model.gradient_checkpointing_enable()
    return model


def tokenizer(name: str) -> Any:
    """The model's own tokenizer; bytes for a debug model."""
    from transformers import AutoTokenizer

    if is_debug(name):
        return byte_tokenizer()
    loaded = AutoTokenizer.from_pretrained(name)
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    return loaded


def byte_tokenizer() -> Any:
    """One token per byte, after padding and the end of a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>"]
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: number for number, token in enumerate([*special, *symbols])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token=special[0], eos_token=special[1])


def sequences(given: argparse.Namespace, tokens: Any) -> Any:
    """The data of a language model as sequences of equal length: token shards, or texts joined by the end token and
    cut; what is left at the end is dropped."""
    length = given.sequence
    if is_prepared(given.data):
        shards = TokenShards(Path(given.data), length)
        if shards.vocab > len(tokens):
            raise SystemExit(
                f"{given.data} was made by a tokenizer of {shards.vocab} words, that of {given.model} has {len(tokens)}"
            )
        return shards
    texts = [str(row["text"]) for row in rows(given.data, "stdlib")]
    joined = [number for text in texts for number in (*tokens(text)["input_ids"], tokens.eos_token_id)]
    return [{"input_ids": joined[at : at + length]} for at in range(0, len(joined) - length + 1, length)]
