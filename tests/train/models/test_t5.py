"""transformers judges T5, both versions: logits, gradients, folders and a loss curve step by step; span corruption is
judged by putting the spans back."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from families import LR, engine_of, export, export_engine, peer_curve, random_model
from single import corpus

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data.loader import Loader, Options
from trainwright.train.data.spans import span_lengths
from trainwright.train.models import huggingface
from trainwright.train.models.encoder_decoder import Seq2SeqInputs
from trainwright.train.models.hf_config import shape_of
from trainwright.train.models.shape import lookup

SIZES = {"layers": 3, "hidden": 52, "heads": 3, "kv_heads": 3, "head_dim": 10, "ffn": 70, "vocab": 331, "context": 512}
SHAPES = [replace(lookup(name + "-debug"), name="odd", **SIZES) for name in ("t5-v1.1-large", "t5-small")]


@pytest.mark.shows("parity", "export", families=("t5",))
@pytest.mark.parametrize("shape", SHAPES, ids=["v1.1", "v1.0"])
def test_transformers_gives_the_same_logits_and_gradients(shape, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = random_model(shape)
    export(model, tmp_path / "hf")
    judge = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).train()
    generator = torch.Generator().manual_seed(5)
    tokens, later = (torch.randint(0, shape.vocab, (2, n), generator=generator) for n in (201, 37))
    ours, theirs = model(tokens, Seq2SeqInputs(later)), judge(input_ids=tokens, decoder_input_ids=later).logits
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    other = dict(judge.named_parameters())
    for mine, name in (("encoder_bias", "encoder"), ("decoder_bias", "decoder")):
        grad = other[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"].grad
        assert torch.allclose(getattr(model, mine).weight.grad, grad, atol=1e-5, rtol=1e-3)
    read_shape, read = huggingface.read_folder(tmp_path / "hf")
    assert replace(read_shape, name="odd", source=shape.source) == shape
    assert all(torch.equal(read(name), value) for name, value in model.named_parameters())


def test_a_published_config_is_recognised():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=1024, d_kv=64, d_ff=2816, num_layers=24, num_heads=16, vocab_size=32128,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    ).to_dict()  # fmt: skip
    # transformers 5 leaves tied tables on for a T5 that is read back; the published file says what it is
    assert shape_of({**config, "tie_word_embeddings": False}, "").name == "t5-v1.1-large"
    with pytest.raises(UserError, match="gated-silu"):
        shape_of({**config, "feed_forward_proj": "gated-silu"}, "")


def settings(tmp_path, **more):
    return TrainConfig(model="odd", data=(corpus(tmp_path),), sequence=64, batch=4, lr=LR, **more)


@pytest.mark.shows("curve", families=("t5",))
def test_the_loss_curve_is_that_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    engine = engine_of(SHAPES[0], settings(tmp_path))
    export_engine(engine, tmp_path / "hf")
    judge = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    samples = engine.objective.open_data((str(tmp_path / "data"),), Options(64, seed=2), None, False)
    batches = [Loader(samples, 4, 4).step(4 * n).microbatches[0] for n in range(5)]
    ours = [float(engine.train_step([batch], LR).loss) for batch in batches]
    theirs = peer_curve(judge, [lambda m, b=b: m(input_ids=b.tokens, labels=b.targets).loss for b in batches])
    assert ours == pytest.approx(theirs, abs=5e-5)
    assert ours[-1] < ours[0]


def test_spans_put_back_give_the_text(tmp_path):
    """512 and 114 tokens come of 568, as in T5; and each sample is complete."""
    lengths = span_lengths(512, 0.15)
    assert (lengths.tokens, lengths.inputs, lengths.targets) == (568, 512, 114)
    objective = engine_of(SHAPES[0], settings(tmp_path)).objective
    samples = objective.open_data((str(tmp_path / "data"),), Options(64), None, False)
    ids = [samples.locate(n) for n in range(20)]
    batch, again = samples.batch(ids), samples.batch(ids)
    assert torch.equal(batch.tokens, again.tokens)
    later = samples.batch([samples.locate(n + samples.epoch_samples) for n in range(20)])
    assert not torch.equal(batch.tokens, later.tokens)
    marks = {int(mark) for mark in samples.sentinels}
    for row, which in enumerate(ids):
        spans, current = {}, None
        for token in batch.targets[row, :-1].tolist():
            current = token if token in marks else current
            spans.setdefault(current, [])
            if token not in marks:
                spans[current].append(token)
        whole = [t for token in batch.tokens[row, :-1].tolist() for t in (spans[token] if token in marks else [token])]
        stored = samples.sources[0].tokens(which.sample)[:-1].tolist()
        assert whole == [int(t) for t in stored]
