"""Hugging Face transformers judges the model code: the same weights give the same logits and the same gradients; and a
round trip through its folder changes no bit."""

import json

import pytest
import torch
import torch.nn.functional as F

from trainwright.errors import UserError
from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models import convert, huggingface
from trainwright.train.models.attention import TokenLayout, attention_mask
from trainwright.train.models.decoder import Decoder, ForwardInputs
from trainwright.train.models.hf_config import config_of, shape_of
from trainwright.train.models.hf_layout import to_huggingface
from trainwright.train.models.initialise import initial_value
from trainwright.train.models.rotary import rotary_cos_sin
from trainwright.train.models.shape import lookup, shapes
from trainwright.train.parallel.plan import ParallelPlan

ARCHITECTURES = [
    "gpt2-124m",
    "gpt3-1.7b",
    "llama2-7b",
    "llama2-70b",
    "llama3-8b",
    "llama3.1-8b",
    "llama3.2-1b",
    "mistral-7b-v0.1",
    "mathstral-7b",
    "qwen2.5-0.5b",
    "qwen3-8b",
    "falcon-7b",
    "falcon-40b",
    "mpt-7b",
    "mpt-30b",
]


def make_model(name: str) -> Decoder:
    """A debug model whose every parameter, norms and biases too, is random: a swapped pair must show."""
    shape = lookup(name + "-debug")
    model = Decoder(shape)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter_name, param in model.named_parameters():
            param.copy_(initial_value(shape, parameter_name, param.shape, 3, torch.device("cpu")))
            param.add_(torch.randn(param.shape, generator=generator), alpha=0.1)
    return model


def export(model: Decoder, folder, **options) -> None:
    huggingface.write_folder(model.shape, dict(model.named_parameters()).__getitem__, folder, **options)


def inputs_for(model: Decoder, tokens: torch.Tensor) -> ForwardInputs:
    shape, index = model.shape, torch.arange(tokens.shape[1])
    positions = index.expand_as(tokens)
    cos_sin = rotary_cos_sin(shape, positions) if shape.position == "rope" else None
    return ForwardInputs(
        positions, cos_sin, attention_mask(shape, TokenLayout(index, index, None, None), True, slice(0, shape.heads))
    )


@pytest.mark.shows("parity", "export")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers_gives_the_same_logits_and_gradients(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = make_model(name)
    with torch.no_grad():
        export(model, tmp_path / "hf")
    judge = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).train()
    tokens = torch.randint(0, model.shape.vocab, (2, 100), generator=torch.Generator().manual_seed(5))
    ours = model(tokens, inputs_for(model, tokens))
    theirs = judge(input_ids=tokens).logits
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    targets = torch.randint(0, model.shape.vocab, (200,), generator=torch.Generator().manual_seed(6))
    F.cross_entropy(ours.flatten(0, 1), targets).backward()
    F.cross_entropy(theirs.flatten(0, 1), targets).backward()
    right = {name: param.grad for name, param in judge.named_parameters()}
    compared = 0
    for parameter_name, param in model.named_parameters():
        for their_name, grad in to_huggingface(model.shape, parameter_name, param.grad).items():
            assert float((grad - right[their_name]).norm() / right[their_name].norm()) < 1e-3, parameter_name
            compared += 1
    assert compared == len(right)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_chunked_loss_gives_the_gradients_of_the_plain_one(name, monkeypatch):
    monkeypatch.setattr("trainwright.train.loss.CHUNK_BYTES", 1 << 18)
    model = make_model(name)
    tokens = torch.randint(0, model.shape.vocab, (2, 100))
    targets = torch.where(torch.rand(tokens.shape) < 0.2, -100, tokens.roll(-1, 1))
    inputs = inputs_for(model, tokens)
    plain = F.cross_entropy(model(tokens, inputs).flatten(0, 1), targets.flatten(), reduction="sum") / 7
    wanted = torch.autograd.grad(plain, list(model.parameters()))
    chunked = model(tokens, ForwardInputs(inputs.positions, inputs.cos_sin, inputs.mask, targets, torch.tensor(1 / 7)))
    got = torch.autograd.grad(chunked, list(model.parameters()))
    assert float(chunked) == pytest.approx(float(plain), rel=1e-5)
    for ours, right in zip(got, wanted, strict=True):
        assert float((ours - right).norm() / right.norm()) < 1e-4


@pytest.mark.parametrize("name", ["gpt2-124m", "llama3.1-8b", "falcon-7b", "falcon-40b", "mpt-7b"])
@pytest.mark.parametrize("file_bytes", [5 << 30, 100_000])
def test_round_trip_is_bit_exact(name, file_bytes, tmp_path):
    model = make_model(name)
    with torch.no_grad():
        export(model, tmp_path / "hf", file_bytes=file_bytes)
    assert ((tmp_path / "hf" / huggingface.INDEX).exists()) == (file_bytes == 100_000)
    shape, read = huggingface.read_folder(tmp_path / "hf", model.shape.name)
    assert shape == model.shape
    for parameter_name, param in model.named_parameters():
        assert torch.equal(read(parameter_name), param.detach()), parameter_name


def test_import_trains_and_exports_what_it_was(tmp_path, capsys):
    """Folder to run to engine to export: the engine starts from the weights, and they come out as they were."""
    model = make_model("llama3.2-1b")
    with torch.no_grad():
        export(model, tmp_path / "hf", dtype="bfloat16")
    run = tmp_path / "run"
    assert convert.import_main([str(tmp_path / "hf"), str(run), "--model", model.shape.name]) == 0
    assert convert.export_main([str(run), str(tmp_path / "again"), "--dtype", "bfloat16"]) == 0
    first, second = (tmp_path / d / huggingface.WEIGHTS for d in ("hf", "again"))
    assert first.read_bytes() == second.read_bytes()
    engine = Engine(model.shape, ParallelPlan(), EngineOptions(), "cpu")
    from torch.distributed.checkpoint import load

    state = engine.state_dict()
    load(state, checkpoint_id=run / "checkpoints" / "step-00000000", no_dist=True)
    engine.load_state_dict(state)
    for name, param in model.named_parameters():
        assert torch.equal(engine.params[name].detach(), param.detach().bfloat16().float())
    tokens = torch.randint(0, model.shape.vocab, (1, 33))
    batch = Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(32)[None])
    assert float(engine.train_step([batch], 1e-3).loss) > 0


@pytest.mark.parametrize("name", [n for n, s in shapes().items() if s.experts])
def test_the_config_of_a_mixture_names_its_own_shape(name):
    """Layers of multi-token prediction, which some were published with, have no weights here."""
    config = json.loads(json.dumps(config_of(lookup(name), "float32")))
    assert (shape_of(config, name).name, shape_of(config, "").hidden) == (name, lookup(name).hidden)


@pytest.mark.parametrize("name", [n for n, s in shapes().items() if s.kind == "decoder" and not s.experts])
def test_config_names_its_own_shape(name):
    config = json.loads(json.dumps(config_of(lookup(name), "float32")))
    found = json.loads(json.dumps(config_of(shape_of(config, ""), "float32")))
    assert {**found, "max_position_embeddings": 0} == {**config, "max_position_embeddings": 0}
    assert shape_of(config, name).name == name


def test_another_models_folder_is_refused(tmp_path):
    model = make_model("llama3-8b")
    with torch.no_grad():
        export(model, tmp_path / "hf")
    with pytest.raises(UserError, match="kv_heads is 2, llama2-7b-debug has 4"):
        huggingface.read_folder(tmp_path / "hf", "llama2-7b-debug")
    whole = (tmp_path / "hf" / huggingface.WEIGHTS).read_bytes()
    (tmp_path / "hf" / huggingface.WEIGHTS).write_bytes(whole[:-10])
    with pytest.raises(UserError, match="truncated"):
        huggingface.read_folder(tmp_path / "hf", "llama3-8b-debug")


@pytest.mark.parametrize("size", ["nan", "inf", "-1", "0", "1e-12", "five"])
def test_a_file_size_that_is_none_is_refused(tmp_path, capsys, size):
    with pytest.raises(SystemExit) as ended:
        convert.export_main([str(tmp_path / "run"), str(tmp_path / "hf"), "--file-gb", size])
    assert ended.value.code == 2
    assert f"--file-gb: {size} is not a size in GB above 0, such as 5" in capsys.readouterr().err
