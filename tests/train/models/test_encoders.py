"""transformers judges BERT, RoBERTa and ESM-2: logits, gradients, folders, and a loss curve step by step."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from families import LR, engine_of, export, export_engine, peer_curve, random_model
from single import corpus

from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import IGNORED
from trainwright.train.data.loader import Loader, Options
from trainwright.train.models import huggingface
from trainwright.train.models.encoder import Encoder, EncoderInputs, bidirectional_mask
from trainwright.train.models.hf_config import shape_of
from trainwright.train.models.rotary import rotary_cos_sin
from trainwright.train.models.shape import RESERVED_POSITIONS, lookup

# Shapes that no published model has: heads that do not divide into powers of two, odd widths and vocabularies.
ODD = {
    "bert-base": {"layers": 3, "hidden": 60, "heads": 5, "kv_heads": 5, "head_dim": 12, "ffn": 100, "vocab": 307},
    "roberta-large": {"layers": 2, "hidden": 84, "heads": 6, "kv_heads": 6, "head_dim": 14, "ffn": 52, "vocab": 1001},
    "esm2-8m": {"layers": 3, "hidden": 40, "heads": 4, "kv_heads": 4, "head_dim": 10, "ffn": 72, "vocab": 33},
}


def odd(name):
    return replace(lookup(name + "-debug"), name="odd", **ODD[name])


def inputs_for(shape, tokens, **more):
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    rotary = rotary_cos_sin(shape, positions) if shape.position == "rope" else None
    return EncoderInputs(positions + RESERVED_POSITIONS.get(shape.family, 0), rotary, **more)


def token_dropout(tokens, mask=32):
    masked = tokens == mask
    return torch.where(masked, 0.0, (1 - 0.12) / (1 - masked.float().mean(1, keepdim=True)))


@pytest.mark.shows("parity", "export", families=("bert", "roberta", "esm2"))
@pytest.mark.parametrize("name", ODD)
def test_transformers_gives_the_same_logits_and_gradients(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = odd(name)
    model = random_model(shape)
    export(model, tmp_path / "hf")
    judge = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).train()
    tokens = torch.randint(4, shape.vocab, (2, 37), generator=torch.Generator().manual_seed(5))
    tokens[:, 3:9] = 32
    scale = token_dropout(tokens) if shape.family == "esm2" else None
    ours = model(tokens, inputs_for(shape, tokens, embed_scale=scale))
    theirs = judge(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    mine, other = model.blocks["0"].attention.out.weight.grad, judge.state_dict(keep_vars=True)
    name = next(n for n in other if n.endswith("layer.0.attention.output.dense.weight"))
    assert torch.allclose(mine, other[name].grad, atol=1e-5, rtol=1e-3)
    assert torch.allclose(model.head.bias.grad, judge.get_output_embeddings().bias.grad if shape.family != "esm2" else
                          judge.lm_head.bias.grad, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_round_trip_through_the_folder_changes_nothing(name, tmp_path):
    shape = odd(name)
    model = random_model(shape)
    export(model, tmp_path / "hf")
    read_shape, read = huggingface.read_folder(tmp_path / "hf")
    assert replace(read_shape, name="odd", source=shape.source, head_dim=shape.head_dim) == shape
    for parameter, value in model.named_parameters():
        assert torch.equal(read(parameter), value)


@pytest.mark.parametrize("name", ["esm2-8m", "bert-base"])
def test_norms_may_be_called_gamma_and_beta(name, tmp_path):
    """As transformers 5 saves an ESM folder, and as BERT was published."""
    safetensors = pytest.importorskip("safetensors.torch")
    model = random_model(odd(name))
    export(model, tmp_path / "hf")
    file = tmp_path / "hf" / huggingface.WEIGHTS
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = safetensors.load_file(file)
    for ours, theirs in old.items():
        tensors = {key.replace(ours, theirs): value for key, value in tensors.items()}
    assert any(key.endswith("LayerNorm.gamma") for key in tensors)
    safetensors.save_file(tensors, file)
    _, read = huggingface.read_folder(tmp_path / "hf")
    for parameter, value in model.named_parameters():
        assert torch.equal(read(parameter), value)


@pytest.mark.parametrize("name", ["bert-large", "roberta-large", "esm2-650m"])
def test_a_published_config_is_recognised(name):
    transformers = pytest.importorskip("transformers")
    kinds = {"bert-large": "BertConfig", "roberta-large": "RobertaConfig", "esm2-650m": "EsmConfig"}
    shape = lookup(name)
    config = getattr(transformers, kinds[name])(
        vocab_size=shape.vocab, hidden_size=shape.hidden, num_hidden_layers=shape.layers, intermediate_size=shape.ffn,
        num_attention_heads=shape.heads, max_position_embeddings=shape.context, layer_norm_eps=shape.norm_eps,
        **({"type_vocab_size": 1} if name.startswith("roberta") else {}),
        **({"position_embedding_type": "rotary", "token_dropout": True} if name.startswith("esm") else {}),
    )  # fmt: skip
    assert shape_of(json.loads(config.to_json_string(use_diff=False)), "").name == name


def test_documents_see_nothing_of_each_other():
    """Two proteins packed into one row have the states of the two apart."""
    shape = odd("esm2-8m")
    model = random_model(shape)
    tokens = torch.randint(4, 24, (1, 50))
    documents = (torch.arange(50)[None] >= 20).long()
    positions = torch.arange(50)[None] - 20 * documents
    mask = bidirectional_mask(tokens, documents, None)
    packed = model.hidden(tokens, EncoderInputs(positions, rotary_cos_sin(shape, positions), mask))
    for part in (slice(0, 20), slice(20, 50)):
        alone = model.hidden(tokens[:, part], inputs_for(shape, tokens[:, part]))
        assert torch.allclose(packed[:, part], alone, atol=1e-5)


@pytest.mark.shows("curve", families=("bert", "roberta", "esm2"))
@pytest.mark.parametrize("name", [n if "roberta" in n else pytest.param(n, marks=pytest.mark.slow) for n in ODD])
def test_the_loss_curve_is_that_of_transformers(name, tmp_path):
    """Through our loader, masking, fused loss and optimizer, against transformers and torch's AdamW."""
    transformers = pytest.importorskip("transformers")
    shape = replace(odd(name), vocab=300)
    settings = TrainConfig(model="odd", data=(corpus(tmp_path),), sequence=64, batch=2, objective="mlm", lr=LR)
    engine = engine_of(shape, settings)
    export_engine(engine, tmp_path / "hf")
    samples = engine.objective.open_data(settings.data, Options(64, seed=3), None, False)
    batches = [Loader(samples, 2, 2).step(2 * n).microbatches[0] for n in range(5)]
    ours = [float(engine.train_step([batch], LR).loss) for batch in batches]
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    config.mask_token_id = samples.special.mask
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf", config=config, dtype=torch.float32)

    def loss(batch):
        if shape.family != "esm2":
            return lambda model: model(input_ids=batch.tokens, labels=batch.targets).loss

        # transformers has no packed proteins: one document at a time, with the mean over all targets.
        def each(model):
            total = 0.0
            for row in range(2):
                for number in batch.documents[row].unique():
                    here = batch.documents[row] == number
                    tokens, labels = batch.tokens[row, here][None], batch.targets[row, here][None]
                    if (labels != IGNORED).any():
                        mean = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss
                        total = total + mean * (labels != IGNORED).sum()
            return total / (batch.targets != IGNORED).sum()

        return each

    theirs = peer_curve(model.train(), [loss(batch) for batch in batches])
    # AdamW divides tiny gradients by themselves, so rounding grows: BERT's weights are 7e-6 apart after the first step.
    assert ours[:2] == pytest.approx(theirs[:2], abs=2e-5)
    assert ours == pytest.approx(theirs, abs=3e-4 if name == "bert-base" else 2e-5)
    assert ours[-1] < ours[0]


def test_masks_are_those_of_bert_and_change_every_epoch(tmp_path):
    settings = TrainConfig(model="odd", data=(corpus(tmp_path),), sequence=64, batch=4, objective="mlm")
    shape = replace(odd("roberta-large"), vocab=300)
    samples = engine_of(shape, settings).objective.open_data(settings.data, Options(64, seed=3), None, False)
    count = samples.epoch_samples
    first, again, second = (samples.batch([samples.locate(n) for n in span]) for span in (
        range(count), range(count), range(count, 2 * count)))  # fmt: skip
    assert torch.equal(first.tokens, again.tokens)
    ranks = Loader(samples, 8, 2, rank=1, world=2).step(0).microbatches[0]
    assert torch.equal(ranks.tokens, samples.batch([samples.locate(n) for n in (4, 5)]).tokens)
    chosen = first.targets != IGNORED
    assert torch.equal(chosen.view(-1).nonzero()[:, 0], first.chosen)
    kept = first.tokens == first.targets
    mask = first.tokens == samples.special.mask
    inner = chosen[:, 1:-1]
    assert not chosen[:, 0].any()
    assert not chosen[:, -1].any()
    assert 0.13 < inner.float().mean() < 0.17
    assert 0.77 < (mask & chosen).sum() / chosen.sum() < 0.83
    assert 0.07 < (kept & chosen).sum() / chosen.sum() < 0.13
    assert not torch.equal(first.tokens, second.tokens)
    assert isinstance(random_model(shape), Encoder)
