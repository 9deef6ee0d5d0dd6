"""transformers judges the vision transformer, and the paper's formulas, written out here, judge DINO step by step."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from families import LR, engine_of, export, export_engine, peer_curve, random_model

from trainwright.train.config import TrainConfig
from trainwright.train.data.image_samples import read_npy
from trainwright.train.data.loader import Loader, Options
from trainwright.train.data.multicrop import CropOptions, crop, hue_rotation, recoloured, weights
from trainwright.train.models import huggingface
from trainwright.train.models.shape import lookup
from trainwright.train.models.vision import ClassifierInputs

SHAPE = replace(
    lookup("vit-s-16-debug"), name="odd", layers=3, hidden=60, heads=5, kv_heads=5, head_dim=12, ffn=100, vocab=7,
    image=28, patch=7, context=17,
)  # fmt: skip
MICROSCOPE = replace(SHAPE, channels=5)


@pytest.mark.shows("parity", "export", families=("vit", "classify"))
@pytest.mark.parametrize("shape", [SHAPE, MICROSCOPE, replace(SHAPE, vocab=0)])
def test_transformers_gives_the_same_outputs_and_gradients(shape, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = random_model(shape)
    export(model, tmp_path / "hf")
    images = torch.randn(2, shape.channels, 28, 28, generator=torch.Generator().manual_seed(1))
    if shape.vocab:
        judge = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf", dtype=torch.float32)
        ours, theirs = model(images, ClassifierInputs()), judge(images).logits
    else:
        judge = transformers.AutoModel.from_pretrained(tmp_path / "hf", dtype=torch.float32, add_pooling_layer=False)
        ours, theirs = model.features([images])[0], judge(images).last_hidden_state[:, 0]
        smaller = torch.randn(3, shape.channels, 14, 14)
        two = model.features([images, smaller])  # other sizes in one pass, with interpolated positions
        assert torch.allclose(two[0], theirs, atol=1e-4)
        alone = judge(smaller, interpolate_pos_encoding=True).last_hidden_state[:, 0]
        assert torch.allclose(two[1], alone, atol=1e-4)
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    grads = {name: p.grad for name, p in judge.named_parameters() if p.grad is not None}
    theirs = next(g for name, g in grads.items() if name.endswith("patch_embeddings.projection.weight"))
    assert torch.allclose(model.patch.weight.grad, theirs.flatten(1), atol=1e-5, rtol=1e-3)
    read_shape, read = huggingface.read_folder(tmp_path / "hf")
    assert replace(read_shape, name="odd", source=shape.source, head_dim=shape.head_dim) == shape
    assert all(torch.equal(read(name), value) for name, value in model.named_parameters())


@pytest.mark.shows("curve", families=("vit", "classify"))
def test_classification_follows_transformers_step_by_step(tmp_path):
    """Crops are taken as given; the loss, its mean over uneven micro-batches and the optimizer are compared."""
    transformers = pytest.importorskip("transformers")
    settings = TrainConfig(model="odd", data=("builtin:textures",), objective="classify", batch=6)
    engine = engine_of(replace(SHAPE, vocab=11), settings)
    export_engine(engine, tmp_path / "hf")
    judge = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    samples = engine.objective.open_data(settings.data, Options(16), None, False)
    batches = [Loader(samples, 6, 6).step(6 * n).microbatches[0] for n in range(5)]
    pixels = [engine.objective.inputs(batch, engine.layout, torch.ones(()))[0] for batch in batches]
    ours = [float(engine.train_step(parts_of(batch, 2), LR).loss) for batch in batches]
    rows = zip(pixels, batches, strict=True)
    theirs = peer_curve(judge.train(), [lambda m, x=x, b=b: F.cross_entropy(m(x).logits, b.labels) for x, b in rows])
    assert ours == pytest.approx(theirs, abs=2e-5)
    assert ours[-1] < ours[0]


def parts_of(batch, first):
    """A batch of images as two uneven micro-batches."""
    columns = (batch.images, batch.labels, batch.dice)
    return [type(batch)(*(part[rows] for part in columns)) for rows in (slice(0, first), slice(first, None))]


class PaperHead(nn.Module):
    """The projection head of DINO's paper, with torch's weight normalisation."""

    def __init__(self, state):
        super().__init__()
        sizes = [state[f"layers.{n}.weight"].shape for n in range(3)]
        layers = [nn.Linear(size[1], size[0]) for size in sizes]
        for number, layer in enumerate(layers):
            layer.load_state_dict({k: state[f"layers.{number}.{k}"] for k in ("weight", "bias")})
        self.mlp = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2])
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(sizes[2][0], len(state["last.weight"]), bias=False))
        with torch.no_grad():
            self.last.parametrizations.weight.original1.copy_(state["last.weight"])
            self.last.parametrizations.weight.original0.fill_(1.0)
        self.last.parametrizations.weight.original0.requires_grad = False

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


def paper_branch(engine, folder, transformers):
    """The student of an engine as transformers' ViT and the paper's head."""
    read = {name: engine.optimizer.read(name).detach().clone() for name in engine.params}
    backbone = {k.removeprefix("student.backbone."): v for k, v in read.items() if "student.backbone." in k}
    huggingface.write_folder(replace(engine.shape, vocab=0), backbone.__getitem__, folder)
    vit = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False)
    head = PaperHead({k.removeprefix("student.head."): v for k, v in read.items() if "student.head." in k})
    return nn.ModuleDict({"vit": vit, "head": head})


def outputs(branch, images):
    states = branch["vit"](images, interpolate_pos_encoding=True).last_hidden_state[:, 0]
    return branch["head"](states)


def paper_loss(student, teacher, centre, temperature):
    """Section 3.1: every pair of a teacher's large crop and another crop of the student."""
    total, pairs = 0.0, 0
    for i, goal in enumerate(teacher):
        q = F.softmax((goal - centre) / temperature, dim=-1).detach()
        for j, output in enumerate(student):
            if i != j:
                total = total + torch.sum(-q * F.log_softmax(output / 0.1, dim=-1), dim=-1).mean()
                pairs += 1
    return total / pairs


@pytest.mark.shows("parity", families=("dino",))
@pytest.mark.shows("curve", families=("vit", "dino"))
def test_dino_follows_the_paper_step_by_step(tmp_path):
    """Teacher, centre, temperature, momentum and weight decay move; crops are taken as given."""
    transformers = pytest.importorskip("transformers")
    steps, images = 5, 6
    settings = TrainConfig(
        model="odd", data=("builtin:textures",), objective="dino", steps=steps, batch=images, prototypes=33,
        local_crops=3, weight_decay=0.04, final_weight_decay=0.4, frozen_head=0.2, clip=3.0, teacher_momentum=0.9,
    )  # fmt: skip
    engine = engine_of(SHAPE, settings)
    objective = engine.objective
    student, teacher = (paper_branch(engine, tmp_path / name, transformers) for name in ("one", "two"))
    samples = objective.open_data(settings.data, Options(16), None, False)
    batches = [Loader(samples, images, images).step(images * n).microbatches[0] for n in range(steps)]
    decayed = [p for p in student.parameters() if p.requires_grad and p.ndim > 1]
    plain = [p for p in student.parameters() if p.requires_grad and p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.95)
    )
    centre, ours, theirs = torch.zeros(33), [], []
    shown = objective.cropped(batches[0])
    right = torch.cat([outputs(student, crops) for crops in shown])
    assert torch.allclose(engine.runner.stages[0].student(shown), right, atol=1e-5)
    for step, batch in enumerate(batches):
        crops = [part.detach() for group in objective.cropped(batch) for part in group.split(images)]
        cosine = (1 + torch.tensor(torch.pi * step / steps).cos().item()) / 2
        temperature = 0.04 + 0.03 * min(1.0, step / steps / 0.1)
        goals = [outputs(teacher, x).detach() for x in crops[:2]]
        loss = paper_loss([outputs(student, x) for x in crops], goals, centre, temperature)
        optimizer.param_groups[0]["weight_decay"] = 0.4 + (0.04 - 0.4) * cosine
        loss.backward()
        if step / steps < 0.2:
            student["head"].last.parametrizations.weight.original1.grad = None
        nn.utils.clip_grad_norm_([p for p in student.parameters() if p.grad is not None], 3.0)
        optimizer.step()
        optimizer.zero_grad()
        momentum = 1 - (1 - 0.9) * (1 + torch.tensor(torch.pi * (step + 1) / steps).cos().item()) / 2
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(momentum).add_(fast, alpha=1 - momentum)
        centre = 0.9 * centre + 0.1 * torch.cat(goals).mean(0)
        theirs.append(loss.item())
        ours.append(float(engine.train_step(parts_of(batch, 2) if step % 2 else [batch], LR).loss))
    assert ours == pytest.approx(theirs, abs=3e-5)
    assert torch.allclose(objective.centre, centre, atol=1e-5)
    last = student["head"].last.parametrizations.weight.original1
    assert torch.allclose(engine.optimizer.read("student.head.last.weight"), last, atol=1e-5)


@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputation_keeps_stochastic_depth(mode):
    settings = TrainConfig(
        data=("builtin:textures",), objective="dino", steps=4, batch=2, prototypes=33, local_crops=1, drop_path=0.5
    )
    plain, recomputed = (engine_of(SHAPE, settings, recompute=kind) for kind in ("none", mode))
    samples = plain.objective.open_data(settings.data, Options(16), None, False)
    data = Loader(samples, 2, 2).step(0).microbatches
    one, other = (engine.train_step(data, LR) for engine in (plain, recomputed))
    assert (float(one.loss), float(one.grad_norm)) == (float(other.loss), float(other.grad_norm))


def test_crops_are_those_of_a_resize_with_antialiasing():
    """The weights of one axis against torch's own resize of the cut-out window."""
    row = torch.rand(1, 1, 1, 40, generator=torch.Generator().manual_seed(3))
    begin, length = torch.tensor([8.0]), torch.tensor([24.0])
    ours = weights(begin, length, 40, 12, torch.zeros(1))[0] @ row[0, 0, 0]
    theirs = F.interpolate(row[..., 8:32], size=(1, 12), mode="bilinear", antialias=True)[0, 0, 0]
    assert torch.allclose(ours[1:-1], theirs[1:-1], atol=1e-5)  # at the ends ours also sees the pixels outside
    same = crop(torch.full((2, 3, 40, 40), 128, dtype=torch.uint8), torch.rand(2, 16), CropOptions(size=16, jitter=0,
                solarize=0), torch.float32)  # fmt: skip
    assert torch.allclose(same, same[0, :, 0, 0].view(1, 3, 1, 1).expand_as(same), atol=2e-3)


def test_colours_keep_grey_and_a_grey_image_has_equal_channels():
    x, dice = torch.rand(4, 3, 5, 5), torch.rand(4, 7)
    grey = torch.full((1, 3, 1), 0.3)
    assert torch.allclose(hue_rotation(torch.tensor([0.7])) @ grey, grey, atol=1e-6)
    flat = recoloured(x, dice, CropOptions(grey=1.0, brightness=0, contrast=0))
    assert torch.allclose(flat[:, 0], flat[:, 1], atol=1e-5)
    assert recoloured(torch.rand(2, 5, 4, 4), dice[:2], CropOptions()).shape == (2, 5, 4, 4)


def test_arrays_are_read_as_numpy_writes_them(tmp_path):
    numpy = pytest.importorskip("numpy")
    for dtype in ("uint8", "uint16"):
        array = numpy.random.default_rng(0).integers(0, numpy.iinfo(dtype).max, (5, 6, 7), dtype=dtype)
        numpy.save(tmp_path / "a.npy", array)
        wanted = array if dtype == "uint8" else array >> 8
        assert read_npy(tmp_path / "a.npy").tolist() == wanted.tolist()


def test_stochastic_depth_leaves_out_what_the_numbers_say():
    """An image without any layer keeps its embedding; the others do not notice; kept parts are scaled up."""
    from trainwright.train.models.vision import VisionTransformer
    from trainwright.train.objectives.dino import Dino

    shape = replace(SHAPE, vocab=0)
    model = random_model(shape)
    large, small = torch.randn(2, 3, 28, 28), torch.randn(3, 3, 14, 14)
    keep = torch.ones(3, 2, 5)
    plain = torch.cat(model.features([large, small]))
    assert torch.allclose(torch.cat(model.features([large, small], keep)), plain, atol=1e-6)
    keep[:, :, 3] = 0
    keep[1, 0, 0] = 2.0
    got = torch.cat(model.features([large, small], keep))
    assert torch.allclose(got[[1, 2, 4]], plain[[1, 2, 4]], atol=1e-5)
    assert torch.allclose(got[3], model.norm(model.embedded(small)[1, 0]), atol=1e-5)
    x = model.embedded(large[:1])
    for number, block in enumerate(model.layers()):
        attended = block.attention(block.attention_norm(x), None, ((1, x.shape[1]),))
        x = x + attended * (2.0 if number == 1 else 1.0)
        x = x + block.mlp(block.mlp_norm(x))
    assert torch.allclose(got[0], model.norm(x[0, 0]), atol=1e-5)
    assert isinstance(model, VisionTransformer)

    objective = Dino(shape, TrainConfig(drop_path=0.5, local_crops=2))
    dice = torch.rand(4000, objective.depth_numbers, generator=torch.Generator().manual_seed(0))
    kept = objective.kept(dice)
    assert kept.shape == (3, 2, 4 * 4000)
    assert bool((kept[0] == 1).all())
    assert torch.allclose(kept.mean((1, 2)), torch.ones(3), atol=0.02)
    assert float((kept[2] == 0).float().mean()) == pytest.approx(0.5, abs=0.02)
