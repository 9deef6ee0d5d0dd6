"""A class of images is known by its name: over several folders, in evaluation, on resume and in `--base`."""

import io
import json
import re
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from single import events, metrics, run, start

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.models.convert import export_main, import_main
from trainwright.train.models.saved_weights import find_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
COLOURS = {
    "apple": (220, 20, 20), "leaf": (20, 200, 30), "sea": (20, 40, 220), "aaa": (230, 230, 20), "zinc": (90, 90, 90),
}  # fmt: skip
TINY = {
    "family": "vit", "kind": "vision", "layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "vocab": 12, "context": 5,
    "activation": "gelu", "norm": "layernorm", "norm_bias": True, "position": "learned", "bias": True, "image": 16,
    "patch": 8, "channels": 3,
}  # fmt: skip
PLAIN = TrainConfig(
    objective="classify", batch=8, micro_batch=8, lr=1e-3, steps=1, device="cpu",
    checkpoint_every="1", watchdog=0,
)  # fmt: skip


def images(folder, count=4, **classes):
    """A folder of one-coloured images; each class has the colour of its name, or of the name given."""
    for name, colour in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (18, 18), COLOURS[colour]).save(folder / name / f"{number}.png")
    return str(folder)


def colours(folder, *names, count=4):
    return images(folder, count, **{name: name for name in names})


def web(path, *numbers):
    """A WebDataset: each sample's class is a number in its `.cls`."""
    with tarfile.open(path, "w") as tar:
        for at, number in enumerate(numbers):
            picture = io.BytesIO()
            Image.new("RGB", (18, 18), list(COLOURS.values())[number % 5]).save(picture, "png")
            for end, content in (("png", picture.getvalue()), ("cls", str(number).encode())):
                member = tarfile.TarInfo(f"{at}.{end}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return str(path)


def config(tmp_path, *data, folder="run", vocab=12, **more):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY | {"vocab": vocab}))
    return replace(PLAIN, model=str(tmp_path / "tiny.json"), data=data, folder=str(tmp_path / folder), **more)


def labels(samples, count=None):
    """The class and the colour of the samples of an epoch."""
    batch = samples.batch([samples.locate(n) for n in range(count or samples.epoch_samples)])
    return {(int(c), tuple(i[:, 5, 5].tolist())) for c, i in zip(batch.labels, batch.images, strict=True)}


def pairs(*names):
    return {(n, COLOURS[name]) for n, name in enumerate(names) if name}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run that tells three colours apart, and its data."""
    folder = tmp_path_factory.mktemp("learned")
    data = colours(folder / "col", "apple", "leaf", "sea")
    made = config(folder, data, eval_data=(data,), eval_every=24, steps=24, checkpoint_every="24", lr=1e-2)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1
    return made


def test_classes_are_numbered_over_all_training_folders(tmp_path):
    first, second = colours(tmp_path / "a", "apple", "sea"), colours(tmp_path / "b", "leaf", "zinc")
    trainer = start(config(tmp_path, first, second))
    assert labels(trainer.parts.loader.samples) == pairs("apple", "leaf", "sea", "zinc")


@pytest.mark.parametrize("objective", ["classify", "dino"])
def test_evaluation_data_has_the_numbers_of_training(objective, tmp_path):
    train, held = colours(tmp_path / "a", "apple", "leaf", "sea"), colours(tmp_path / "b", "leaf", "sea")
    trainer = start(config(tmp_path, train, eval_data=(held,), objective=objective, prototypes=16, local_crops=1))
    assert labels(trainer.parts.loader.samples) == pairs("apple", "leaf", "sea")
    assert labels(trainer.parts.eval_loader.samples) == pairs("", "leaf", "sea")


def test_a_class_that_only_the_evaluation_has_is_refused(tmp_path):
    train, held = colours(tmp_path / "a", "apple", "leaf"), colours(tmp_path / "b", "leaf", "sea")
    with pytest.raises(UserError, match=r"'sea'.*not.*training.*apple, leaf") as error:
        start(config(tmp_path, train, eval_data=(held,)))
    assert error.value.where == held
    assert "--data" in error.value.fix


def test_neighbours_count_a_class_without_training_images_as_wrong(tmp_path, capsys):
    train, held = colours(tmp_path / "a", "apple", "leaf"), colours(tmp_path / "b", "sea")
    made = config(
        tmp_path, train, eval_data=(held,), objective="dino", prototypes=16, local_crops=1, eval_every=1, batch=2,
        micro_batch=2,
    )  # fmt: skip
    run(made)
    assert metrics(made)[-1]["scores"]["knn"] == 0
    assert re.search("note: .*'sea'.*knn", capsys.readouterr().err)


def test_every_folder_of_a_mixture_is_seen_by_its_weight(tmp_path, capsys):
    first, second = colours(tmp_path / "a", "apple", "leaf", count=6), colours(tmp_path / "b", "sea", count=3)
    made = config(tmp_path, f"{first}:3", second, steps=3)
    _, trainer = run(made)
    ids = [trainer.parts.loader.samples.locate(n) for n in range(8)]
    assert sorted(which.source for which in ids) == [0, 0, 0, 0, 0, 0, 1, 1]
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("data:"))
    assert line.startswith("data: 15 images of 5 tokens; 8 images = 40 tokens per step")
    # 24 samples: 18 of 12 images, and 6 of 3.
    assert line.endswith(f"in 3 steps: 1.50 epochs of {first} (12 images), 2.00 epochs of {second} (3 images)")


def test_the_images_of_a_mixture_are_all_seen_once_in_an_epoch(tmp_path):
    first, second = colours(tmp_path / "a", "apple", count=6), colours(tmp_path / "b", "sea", count=6)
    samples = start(config(tmp_path, first, second, holdout=0.5, eval_every=1)).parts
    for loader in (samples.loader, samples.eval_loader):
        assert loader.samples.epoch_samples == 6
    seen = [samples.loader.samples.locate(n) for n in range(6)]
    held = [samples.eval_loader.samples.locate(n) for n in range(6)]
    assert {(which.source, which.sample) for which in (*seen, *held)} == {(s, n) for s in (0, 1) for n in range(6)}


def test_the_run_and_its_checkpoint_keep_the_names(learned, capsys):
    assert json.loads((Path(learned.folder) / "classes.json").read_text()) == ["apple", "leaf", "sea"]
    manifest, _ = find_checkpoint(learned.folder)
    assert manifest.trainer["classes"]["names"] == ["apple", "leaf", "sea"]


def resumed(learned, tmp_path, *data, **more):
    """That run, copied and continued with other data."""
    shutil.copytree(learned.folder, tmp_path / "run")
    again = replace(learned, folder=str(tmp_path / "run"), data=data, steps=learned.steps + 1, lr=0.0)
    return replace(again, checkpoint_every="1", **more)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("aaa", "apple", "leaf", "sea"), "aaa is new"),
        (("apple", "leaf"), "sea is missing"),
        (("apple", "leaf", "zinc"), "zinc is new, sea is missing"),
    ],
)
def test_a_run_does_not_continue_with_other_classes(names, said, learned, tmp_path):
    made = resumed(learned, tmp_path, colours(tmp_path / "other", *names), eval_data=(), eval_every=0)
    before = (Path(made.folder) / "config.json").read_bytes()
    with pytest.raises(UserError, match=said) as error:
        run(made)
    assert (Path(made.folder) / "config.json").read_bytes() == before, "a refused start changes nothing"
    assert "--data" in error.value.fix
    assert "another --folder" in error.value.fix


def test_a_run_continues_when_its_classes_are_in_two_folders(learned, tmp_path):
    data = colours(tmp_path / "a", "leaf", "sea"), colours(tmp_path / "b", "apple")
    made = resumed(learned, tmp_path, *data, eval_every=1)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1


def without_names(folder):
    """The checkpoints of a run, as an earlier version wrote them."""
    for path in Path(folder).glob("checkpoints/*/manifest.json"):
        manifest = json.loads(path.read_text())
        del manifest["trainer"]["classes"]
        path.write_text(json.dumps(manifest))


def test_a_checkpoint_without_names_continues_with_a_note(learned, tmp_path, capsys):
    made = resumed(learned, tmp_path, *learned.data, eval_every=1)
    without_names(made.folder)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1
    assert any("does not name its classes" in event["text"] for event in events(made, "note"))
    assert find_checkpoint(made.folder)[0].trainer["classes"]["names"] == ["apple", "leaf", "sea"]


def test_a_checkpoint_without_names_is_not_continued_with_two_folders(learned, tmp_path):
    """Earlier versions numbered the classes of the first folder only."""
    made = resumed(learned, tmp_path, *learned.data, colours(tmp_path / "b", "apple"), eval_every=0, eval_data=())
    without_names(made.folder)
    with pytest.raises(UserError, match="read the first folder of --data only"):
        run(made)


@pytest.fixture(scope="module")
def exported(learned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "hf"
    export_main([learned.folder, str(folder)])
    return str(folder)


@pytest.mark.parametrize("form", ["run", "folder"])
def test_the_classifier_of_a_base_keeps_the_numbers_of_its_names(form, learned, exported, tmp_path):
    base = {"run": learned.folder, "folder": exported}[form]
    data = colours(tmp_path / "two", "leaf", "sea")
    made = config(tmp_path, data, eval_data=(data,), eval_every=1, base=base, lr=0.0)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == ["apple", "leaf", "sea"]
    again = replace(made, steps=2)
    run(again)
    assert metrics(again)[-1]["scores"]["accuracy"] == 1


def test_a_base_of_other_classes_gives_its_backbone_only(learned, tmp_path, capsys):
    data = colours(tmp_path / "two", "leaf", "zinc")
    made = config(tmp_path, data, base=learned.folder, lr=0.0)
    _, trainer = run(made)
    said = capsys.readouterr().err
    assert re.search("base: the backbone of .*: it does not have the class 'zinc'; the classifier begins anew", said)
    fresh = start(config(tmp_path, data, folder="fresh")).engine.optimizer
    assert trainer.engine.optimizer.read("head.weight").equal(fresh.read("head.weight"))
    assert not trainer.engine.optimizer.read("cls").equal(fresh.read("cls"))
    with pytest.raises(UserError, match=r"'zinc'.*LoRA") as error:
        start(replace(made, folder=str(tmp_path / "lora"), lora_rank=2))
    assert "--lora-rank" in error.value.fix


def test_a_base_without_names_is_taken_as_the_data_is_numbered(learned, tmp_path, capsys):
    export_main([learned.folder, str(tmp_path / "hf")])
    path = tmp_path / "hf" / "config.json"
    table = json.loads(path.read_text())
    table["id2label"] = {n: f"LABEL_{n}" for n in table["id2label"]}
    path.write_text(json.dumps(table))
    made = config(tmp_path, *learned.data, eval_data=learned.data, eval_every=1, base=str(tmp_path / "hf"), lr=0.0)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1
    assert "does not name its classes" in capsys.readouterr().err


def test_an_imported_run_goes_by_the_names_of_the_folder(learned, tmp_path):
    export_main([learned.folder, str(tmp_path / "hf")])
    import_main([str(tmp_path / "hf"), str(tmp_path / "run")])
    import_main([str(tmp_path / "hf"), str(tmp_path / "other")])
    data = colours(tmp_path / "two", "leaf", "sea")
    made = config(tmp_path, data, eval_data=(data,), eval_every=1, lr=0.0)
    run(made)
    assert metrics(made)[-1]["scores"]["accuracy"] == 1
    with pytest.raises(UserError, match="zinc is new") as error:
        run(config(tmp_path, colours(tmp_path / "three", "leaf", "zinc"), folder="other"))
    assert f"--base {tmp_path / 'other'}" in error.value.fix


def test_numbers_of_a_web_dataset_are_the_classes_themselves(tmp_path):
    first, second = web(tmp_path / "a.tar", 1, 4), web(tmp_path / "b.tar", 2, 2)
    held = web(tmp_path / "c.tar", 4, 7)
    trainer = start(config(tmp_path, first, second, eval_data=(held,)))
    assert {number for number, _ in labels(trainer.parts.loader.samples)} == {1, 2, 4}
    assert {number for number, _ in labels(trainer.parts.eval_loader.samples)} == {4, 7}


def test_numbers_and_names_meet_where_a_folder_is_named_by_a_number(tmp_path):
    train, held = web(tmp_path / "a.tar", 2, 10), images(tmp_path / "b", **{"10": "apple", "2": "sea"})
    trainer = start(config(tmp_path, train, eval_data=(held,)))
    assert labels(trainer.parts.eval_loader.samples) == {(10, COLOURS["apple"]), (2, COLOURS["sea"])}


def test_numbers_and_names_are_not_guessed(tmp_path):
    numbers, names = web(tmp_path / "a.tar", 0, 1), colours(tmp_path / "b", "apple", "leaf")
    with pytest.raises(UserError, match=r"numbers.*names"):
        start(config(tmp_path, numbers, names))
    with pytest.raises(UserError, match=r"'apple'.*'leaf'.*numbers"):
        start(config(tmp_path, numbers, eval_data=(names,)))
    with pytest.raises(UserError, match=r"'0'.*'1'.*apple, leaf"):
        start(config(tmp_path, names, eval_data=(numbers,)))


def test_a_run_on_numbers_continues_without_names(tmp_path, capsys):
    made = config(tmp_path, web(tmp_path / "a.tar", 0, 1))
    run(made)
    run(replace(made, steps=2))
    assert "name" not in capsys.readouterr().err
    with pytest.raises(UserError, match=r"numbers.*names"):
        run(replace(made, steps=3, data=(colours(tmp_path / "b", "apple", "leaf"),)))


@pytest.mark.parametrize("form", ["base", "import"])
def test_numbers_keep_the_names_of_the_weights(form, learned, exported, tmp_path, capsys):
    made = config(tmp_path, web(tmp_path / "a.tar", 0, 1, 2), base=exported if form == "base" else "")
    if form == "import":
        import_main([exported, made.folder])
    run(made)
    assert "those of the data are numbers" in capsys.readouterr().err
    run(replace(made, steps=2))
    assert find_checkpoint(made.folder)[0].trainer["classes"] == {
        "names": ["apple", "leaf", "sea"], "in_data": [], "numbered": True,
    }  # fmt: skip


def test_too_many_classes_of_two_folders_are_counted_together(tmp_path):
    data = colours(tmp_path / "a", "apple", "sea"), colours(tmp_path / "b", "leaf", "zinc")
    with pytest.raises(UserError, match="4 classes, the model 3"):
        start(config(tmp_path, *data, vocab=3))
