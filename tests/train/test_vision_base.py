"""Weights of images travel between runs, folders and objectives: a backbone without its heads is a base, too."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from single import metrics, run

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.models.convert import export_main, import_main
from trainwright.train.models.safetensors import TensorFile
from trainwright.train.models.saved_weights import find_checkpoint, read_checkpoint

PLAIN = TrainConfig(
    model="vit-s-16-debug", data=("builtin:textures",), batch=2, local_crops=1, steps=1, prototypes=16, device="cpu",
    checkpoint_every="1", watchdog=0,
)  # fmt: skip
OBJECTIVES = ("dino", "classify")


def trained(folder, **more):
    config = replace(PLAIN, folder=str(folder), **more)
    return config, run(config)[1]


def tensors(folder):
    file = TensorFile(Path(folder) / "model.safetensors")
    return {name: file.read(name) for name in file.entries}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A run of each objective, its export, and the run that begins with the export."""
    folder, places = tmp_path_factory.mktemp("sources"), {}
    for objective in OBJECTIVES:
        trained(folder / objective, objective=objective, seed=7)
        export_main([str(folder / objective), str(folder / f"{objective}-hf")])
        import_main([str(folder / f"{objective}-hf"), str(folder / f"{objective}-again")])
        places[objective] = [str(folder / (objective + end)) for end in ("", "-hf", "-again")]
    return places


@pytest.mark.parametrize("form", ["run", "folder", "import"])
@pytest.mark.parametrize("source", OBJECTIVES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_are_a_base_for_both_objectives(objective, source, form, sources, tmp_path):
    base = sources[source][("run", "folder", "import").index(form)]
    _, trainer = trained(tmp_path / "run", objective=objective, base=base, lr=0.0)
    shape, read = read_checkpoint(*find_checkpoint(sources[source][0]))
    heads = 0
    for name in trainer.engine.params:
        own = name.removeprefix("student.").removeprefix("backbone.")
        if ".head." in name or (own.startswith("head.") and not shape.vocab):
            heads += 1
            continue
        assert torch.equal(trainer.engine.optimizer.read(name), read(own)), name
    assert bool(heads) == ("dino" in (objective, source))
    if objective == "dino":
        teacher = trainer.parts.objective.teacher.masters
        assert torch.equal(teacher["teacher.backbone.cls"], read("cls"))
    notes = [note for note in trainer.engine.description() if note.startswith("base:")]
    assert bool(notes) == bool(heads)


@pytest.mark.parametrize("source", OBJECTIVES)
def test_a_round_trip_is_bit_identical(source, sources, tmp_path):
    export_main([sources[source][2], str(tmp_path / "out")])
    before, after = tensors(sources[source][1]), tensors(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    configs = [json.loads((Path(f) / "config.json").read_text()) for f in (sources[source][1], tmp_path / "out")]
    assert configs[0] == configs[1]


@pytest.mark.parametrize("source", OBJECTIVES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_begins_with_what_was_imported(objective, source, sources, tmp_path):
    import_main([sources[source][1], str(tmp_path / "run")])
    config, _ = trained(tmp_path / "run", objective=objective)
    based, _ = trained(tmp_path / "based", objective=objective, base=sources[source][1])
    assert metrics(config)[0]["loss"] == metrics(based)[0]["loss"]
    longer = replace(config, steps=2)
    run(longer)
    assert [line["step"] for line in metrics(longer)] == [1, 2]


def test_a_backbone_as_the_model_says_where_its_classes_go(sources, tmp_path):
    folder = sources["dino"][1]
    with pytest.raises(UserError, match="the model 0") as error:
        trained(tmp_path / "run", objective="classify", model=folder, base=folder)
    config = json.loads((Path(folder) / "config.json").read_text())
    classes = int(error.value.fix.split(" entries")[0].rsplit(" ", 1)[1])
    config |= {"architectures": ["ViTForImageClassification"], "id2label": {str(n): str(n) for n in range(classes)}}
    (tmp_path / "mine.json").write_text(json.dumps(config))
    assert all(word in error.value.fix for word in ("architectures", "ViTForImageClassification", "id2label"))
    assert trained(tmp_path / "run", objective="classify", model=str(tmp_path / "mine.json"), base=folder)


def test_a_run_of_another_objective_is_not_continued(tmp_path):
    trained(tmp_path / "run", objective="dino")
    with pytest.raises(UserError, match=r"objective dino.*objective classify") as error:
        trained(tmp_path / "run", objective="classify", steps=2)
    assert "--base" in error.value.fix


def test_adapters_do_not_leave_a_new_head_untrained(sources, tmp_path):
    with pytest.raises(UserError, match="no head") as error:
        trained(tmp_path / "a", objective="classify", base=sources["dino"][1], lora_rank=2)
    assert "--lora-rank" in error.value.fix
    with pytest.raises(UserError, match="dino"):
        trained(tmp_path / "b", objective="dino", base=sources["dino"][1], lora_rank=2)


def test_an_export_of_images_does_not_miss_a_tokenizer(sources, tmp_path, capsys):
    export_main([sources["dino"][0], str(tmp_path / "out")])
    assert "tokenizer" not in capsys.readouterr().err
