"""PEFT judges the adapters of every family: it loads them as they were trained, or `--adapter` is refused."""

import json
from dataclasses import replace

import pytest
import torch

from trainwright.errors import UserError
from trainwright.train.lora import LoRAOptions
from trainwright.train.models import adapters, huggingface
from trainwright.train.models.initialise import initial_value
from trainwright.train.models.shape import lookup, shapes

transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
OPTIONS = LoRAOptions(4, 8.0)
FAMILIES = {shape.family: name for name, shape in reversed(shapes().items())}  # a model of each, found in the data
REFUSED = dict.fromkeys(("gpt2", "gpt3", "falcon", "mpt", "phi3", "gpt_neox"), "in one layer") | {"vit": "renames"}


def base_and_merged(shape, folder):
    """A model with random weights, its random adapters, and the two as one model."""
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: initial_value(shape, name, size, 5, torch.device("cpu"))
        for name, size in huggingface.parameter_sizes(shape).items()
    }
    sizes = adapters.adapter_sizes(shape, OPTIONS)
    both = {name: 0.3 * torch.randn(size, generator=generator) for name, size in sizes.items()}
    huggingface.write_folder(shape, weights.__getitem__, folder / "base")
    merged = adapters.merged(shape, OPTIONS, weights.__getitem__, both.__getitem__)
    huggingface.write_folder(shape, merged, folder / "merged")
    return both


def opened(folder):
    [name] = json.loads((folder / "config.json").read_text())["architectures"]
    return getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()


def inputs(shape):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(2, min(shape.vocab, 300), (2, 20), generator=generator)
    more = {"decoder_input_ids": tokens[:, :9]} if shape.kind == "encoder-decoder" else {}
    return {"input_ids": tokens, **more}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_peft_gives_the_logits_of_the_merged_model_or_adapters_are_refused(family, tmp_path):
    known = lookup(FAMILIES[family] + "-debug")
    shape = replace(known, layers=2, vocab=min(known.vocab, 320))
    if family in REFUSED:
        zeros = {name: torch.zeros(size) for name, size in adapters.adapter_sizes(shape, OPTIONS).items()}
        with pytest.raises(UserError, match=REFUSED[family]) as caught:
            adapters.write_peft(shape, OPTIONS, zeros.__getitem__, tmp_path / "adapter", "base")
        assert caught.value.fix == "export without --adapter: the adapters are then merged into the weights"
        assert not (tmp_path / "adapter").exists()
        return
    both = base_and_merged(shape, tmp_path)
    adapters.write_peft(shape, OPTIONS, both.__getitem__, tmp_path / "adapter", "base")
    given = inputs(shape)
    plain, merged = opened(tmp_path / "base"), opened(tmp_path / "merged")
    with torch.no_grad():
        before, wanted = plain(**given).logits, merged(**given).logits
        got = peft.PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()(**given).logits
    assert (wanted - before).abs().max() > 1e-2, "adapters without an effect would show nothing"
    assert (got - wanted).abs().max() < 1e-4 * max(1.0, float(wanted.abs().max()))
