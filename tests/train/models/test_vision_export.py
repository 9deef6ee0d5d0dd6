"""transformers classifies an image file with an exported folder alone, as the trainer does: names, size, mean."""

import json
import sys
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from single import run

from trainwright.train.config import TrainConfig
from trainwright.train.data.image_decoders import decoder
from trainwright.train.data.loader import SampleId
from trainwright.train.data.multicrop import centre_crop
from trainwright.train.models.convert import export_main
from trainwright.train.models.vision import ClassifierInputs
from trainwright.train.objectives.dino import DinoInputs

pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES = ("chat noir", "dög", "zèbre")


def photograph(path, width, height, seed):
    """Edges, slopes and grain, as a camera gives them."""
    rows, columns = numpy.mgrid[0:height, 0:width]
    dice = numpy.random.default_rng(seed)
    waves = [128 + 70 * numpy.sin(columns / 9 + k + seed) * numpy.cos(rows / 7) for k in range(3)]
    spot = 60 * (numpy.hypot(columns - width / 3, rows - height / 2) < height / 4)
    grain = dice.normal(0, 6, (height, width, 3))
    pixels = numpy.stack(waves, -1) + spot[..., None] + grain
    Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of each objective on image files, and its export."""
    folder, places = tmp_path_factory.mktemp("trained"), {}
    for at, name in enumerate(CLASSES):
        (folder / "data" / name).mkdir(parents=True)
        photograph(folder / "data" / name / "square.png", 90, 90, at)
        photograph(folder / "data" / name / "wide.jpg", 150, 97, at)
    for objective in ("classify", "dino"):
        config = TrainConfig(
            model="vit-s-16-debug", data=(str(folder / "data"),), objective=objective, batch=2, micro_batch=2, steps=2,
            lr=1e-3, checkpoint_every="2", local_crops=1, prototypes=16, device="cpu", watchdog=0,
            folder=str(folder / objective),
        )  # fmt: skip
        places[objective] = run(config)[1], folder / f"{objective}-hf"
        export_main([config.folder, str(places[objective][1])])
    return places


def outputs(trainer, sample, decode):
    """What the trainer computes for one image when it evaluates."""
    samples = trainer.parts.loader.samples
    samples.sources[0].decode = decode
    pixels = centre_crop(samples.batch([SampleId(0, 0, sample)]).images, 32, torch.float32)
    model, objective = trainer.engine.runner.stages[0], trainer.parts.objective
    if trainer.config.objective == "classify":
        return model(pixels, ClassifierInputs())
    none = DinoInputs(objective.centre, objective.heat, pixels[:0], objective.centre, features=True)
    return model([pixels], none)


def answers(objective, folder, path):
    transformers = pytest.importorskip("transformers")
    inputs = transformers.AutoImageProcessor.from_pretrained(folder)(Image.open(path), return_tensors="pt")
    if objective == "classify":
        return transformers.AutoModelForImageClassification.from_pretrained(folder)(**inputs).logits
    return transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)(**inputs).last_hidden_state[:, 0]


@pytest.mark.parametrize("objective", ["classify", "dino"])
@torch.no_grad()
def test_transformers_gives_the_outputs_of_the_trainer_for_an_image_file(objective, trained):
    trainer, folder = trained[objective]
    for sample, entry in enumerate(trainer.parts.loader.samples.sources[0].entries):
        theirs = answers(objective, folder, entry.path)
        ours, default = (outputs(trainer, sample, decoder(name)) for name in ("pillow", ""))
        # Of a wide image, transformers resizes the whole and cuts then; the faster decoders round otherwise.
        wide = entry.path.endswith("jpg")
        assert (ours - theirs).abs().max() < (0.02 if wide else 1e-4) * theirs.abs().max()
        assert (default - theirs).abs().max() < 0.1 * theirs.abs().max()


def test_the_classes_of_an_export_have_their_names(trained):
    config = json.loads((trained["classify"][1] / "config.json").read_text())
    assert [config["id2label"][str(n)] for n in range(5)] == [*CLASSES, "LABEL_3", "LABEL_4"]
    assert len(config["id2label"]) == 1000
    assert config["label2id"] == {name: int(n) for n, name in config["id2label"].items()}
    assert "id2label" not in json.loads((trained["dino"][1] / "config.json").read_text())


def test_the_preprocessing_of_an_export_is_that_of_training(trained):
    for _, folder in trained.values():
        table = json.loads((folder / "preprocessor_config.json").read_text())
        assert table["size"] == {"shortest_edge": 36}
        assert table["crop_size"] == {"height": 32, "width": 32}
        assert table["image_mean"] == [0.485, 0.456, 0.406]
        assert table["image_std"] == [0.229, 0.224, 0.225]


def test_a_class_named_as_transformers_names_the_rest_is_found(trained):
    from trainwright.train.models.hf_vision import label_names

    names = label_names(3, ["LABEL_2", "b"])
    assert names["id2label"] == {"0": "LABEL_2", "1": "b", "2": "LABEL_2"}
    assert names["label2id"] == {"LABEL_2": 0, "b": 1}


def test_an_export_of_a_checkpoint_without_names_says_so(trained, tmp_path, capsys):
    trainer, _ = trained["classify"]
    path = next(Path(trainer.config.folder).glob("checkpoints/*/manifest.json"))
    whole = path.read_text()
    manifest = json.loads(whole)
    del manifest["trainer"]["classes"]
    path.write_text(json.dumps(manifest))
    try:
        export_main([trainer.config.folder, str(tmp_path / "hf")])
    finally:
        path.write_text(whole)
    assert "without the names of its classes" in capsys.readouterr().err
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["id2label"]["0"] == "LABEL_0"
