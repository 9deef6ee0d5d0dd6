"""A run of adapters or of DPO depends on its base for ever: its checkpoints say what that was, and resume and export
take nothing else."""

import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from single import metrics, run, same, weights
from test_finetuning import ROW, SHAPE, chats, pair_data, settings

from trainwright.errors import UserError
from trainwright.train.base_pin import describe
from trainwright.train.checkpoint.manifest import NAME
from trainwright.train.data.chat import prepare_chats
from trainwright.train.models import convert, huggingface, saved_weights
from trainwright.train.models.initialise import initial_value
from trainwright.train.models.safetensors import TensorFile, fingerprint


def write_base(folder: Path, seed: int) -> Path:
    sizes = huggingface.parameter_sizes(SHAPE)
    huggingface.write_folder(SHAPE, lambda n: initial_value(SHAPE, n, sizes[n], seed, torch.device("cpu")), folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two bases of the same shape, data, and a run of 2 steps; copied for each test."""
    folder = tmp_path_factory.mktemp("made")
    write_base(folder / "first", 5)
    write_base(folder / "other", 6)
    prepare_chats([str(chats(folder))], folder / "chat", "bytes", ROW)
    pair_data(folder)
    run(full(folder, "mover"))
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def full(folder: Path, name: str, **more):
    values = {"objective": "sft", "steps": 2, "checkpoint_every": "2", "batch": 2, "micro_batch": 2, "base": "",
              "sequence": ROW}  # fmt: skip
    return replace(settings(folder / name, folder / "first", str(folder / "chat")), **{**values, **more})


def lora(folder: Path, name: str = "run", **more):
    return full(folder, name, **{"lora_rank": 4, "base": "first", **more})


def dpo(folder: Path, name: str = "run", **more):
    values = {"data": (str(folder / "pairs"),), "objective": "dpo", "lr": 1e-2, "base": "mover"}
    return full(folder, name, **{**values, **more})


def exported(run: str, folder: str, *more: str) -> dict[str, torch.Tensor]:
    assert convert.export_main([run, folder, *more]) == 0
    return tensors(folder)


def tensors(folder: str) -> dict[str, torch.Tensor]:
    file = TensorFile(Path(folder) / "model.safetensors")
    return {name: file.read(name) for name in file.entries}


def refusal(act) -> UserError:
    with pytest.raises(UserError) as caught:
        act()
    return caught.value


def unpin(config) -> None:
    """Make its checkpoints those of an earlier version."""
    for path in Path(config.folder).glob(f"checkpoints/*/{NAME}"):
        manifest = json.loads(path.read_text())
        del manifest["trainer"]["base"]
        path.write_text(json.dumps(manifest))


def test_an_export_takes_the_step_of_the_base_that_was_trained_on(place):
    run(lora(place, base="mover"))
    before = exported("run", "one")
    run(full(place, "mover", steps=4))
    after = exported("run", "two")
    assert same(before, after)
    _, trainer = run(lora(place, base="mover", steps=3))
    assert trainer.parts.base.step == 2


def test_a_base_in_s3_is_pinned_by_its_address(place, s3):
    mover = full(place, "far", checkpoint_to=s3)
    run(mover)
    _, trainer = run(lora(place, base="far"))
    assert (trainer.parts.base.place, trainer.parts.base.step) == (s3, 2)
    before = exported("run", "one")
    run(replace(mover, steps=3))
    shutil.rmtree("far")
    assert same(exported("run", "two"), before)


def test_a_base_with_other_contents_is_refused_at_export_and_at_resume(place):
    run(lora(place))
    shutil.rmtree("first")
    shutil.copytree("other", "first")
    error = refusal(lambda: convert.export_main(["run", "hf"]))
    assert f"the base {place / 'first'} has changed since the run began: model.safetensors has other" in error.what
    assert "export --base PATH" in error.fix
    assert not Path("hf").exists()
    error = refusal(lambda: run(lora(place, steps=3)))
    assert "has changed since the run began: model.safetensors has other contents" in error.what


def test_another_base_is_refused_with_the_first_one_as_fix(place):
    config = lora(place)
    run(config)
    kept = (place / "run" / "config.json").read_bytes()
    error = refusal(lambda: run(replace(config, base="other", steps=3)))
    assert "trained on another base" in error.what
    assert "model.safetensors has other contents" in error.what
    assert error.fix == f"--base {place / 'first'}, or another --folder"
    assert (place / "run" / "config.json").read_bytes() == kept
    run(replace(config, base=str(place / "first"), steps=3))
    error = refusal(lambda: run(replace(config, base="mover", steps=4)))
    assert "a Hugging Face folder" in error.what
    assert "checkpoint" in error.what


def test_a_base_that_moved_is_found_by_its_contents(place):
    config = lora(place)
    run(config)
    before = exported("run", "one")
    os.rename("first", "moved")
    config = replace(config, model="moved")
    error = refusal(lambda: convert.export_main(["run", "two"]))
    assert error.what == f"the base {place / 'first'} is not there"
    assert "export --base PATH" in error.fix
    assert same(exported("run", "two", "--base", "moved"), before)
    error = refusal(lambda: convert.export_main(["run", "three", "--base", "other"]))
    assert "trained on another base" in error.what
    assert refusal(lambda: run(replace(config, steps=3))).what == f"the base {place / 'first'} is not there"
    run(replace(config, base="moved", steps=3))
    exported("run", "four")  # the newest checkpoint names the new place


def test_an_export_does_not_depend_on_the_working_folder(place, monkeypatch):
    run(lora(place))
    monkeypatch.chdir(place / "run")
    exported("../run", "../hf")
    saved = json.loads((place / "run" / "config.json").read_text())
    assert saved["base"] == str(place / "first")


@pytest.mark.parametrize("rank", [0, 4])
def test_a_resumed_dpo_run_has_the_reference_it_began_with(rank, place):
    config = dpo(place, steps=4, lora_rank=rank)
    _, undisturbed = run(config)
    shutil.copytree("run", "copy")
    run(full(place, "mover", steps=4))
    again = replace(config, folder=str(place / "copy"))
    _, resumed = run(replace(again, resume="2"))
    assert same(weights(undisturbed), weights(resumed))
    assert [m["loss"] for m in metrics(again)] == [m["loss"] for m in metrics(config)]
    error = refusal(lambda: run(replace(again, base="other", steps=5)))
    assert "trained on another base" in error.what


def test_a_step_of_the_base_that_is_gone_is_named(place):
    run(lora(place, base="mover"))
    run(full(place, "mover", steps=4, keep_last=1))
    checkpoints = place / "mover" / "checkpoints"
    error = refusal(lambda: run(lora(place, base="mover", steps=3)))
    assert error.what == f"step 2 of the base {checkpoints} is not there (it has step 4)"
    assert "or another --folder" in error.fix
    error = refusal(lambda: convert.export_main(["run", "hf"]))
    assert "export --base PATH" in error.fix


def test_a_step_that_was_trained_anew_is_not_the_same(place):
    run(lora(place, base="mover"))
    run(full(place, "mover", resume="never", seed=3))
    error = refusal(lambda: convert.export_main(["run", "hf"]))
    assert "has changed since the run began: step 2 has other contents" in error.what


def test_adapters_on_a_run_of_adapters_pin_both(place):
    run(lora(place, "inner"))
    run(lora(place, base="inner"))
    exported("run", "one")
    os.rename("first", "moved")
    error = refusal(lambda: convert.export_main(["run", "two"]))
    assert error.what == f"the base {place / 'first'} is not there"
    assert "symbolic link" in error.fix  # --base would name the outer one
    os.symlink("moved", "first")
    exported("run", "two")


def test_adapters_on_random_weights_keep_their_seed(place):
    config = lora(place, base="random")
    run(config)
    run(replace(config, steps=3))
    error = refusal(lambda: run(replace(config, seed=1, steps=4)))
    assert error.fix == "--seed 0, or another --folder"
    error = refusal(lambda: run(replace(config, base="first", steps=4)))
    assert error.fix == "--base random, or another --folder"
    assert "random weights" in refusal(lambda: convert.export_main(["run", "hf"])).what


def test_a_base_that_is_no_base_is_named_at_the_first_start(place):
    error = refusal(lambda: run(lora(place, base="lost")))
    assert error.what == f"the base {place / 'lost'} is not there"
    error = refusal(lambda: run(lora(place, base="chat")))
    what = f"the base {place / 'chat'} holds neither weights with a config.json nor a complete checkpoint"
    assert (error.what, error.fix) == (what, "--base with a Hugging Face folder, a run or a checkpoint")


def test_checkpoints_without_the_pin_still_load(place, capsys):
    config = lora(place)
    run(config)
    unpin(config)
    exported("run", "hf")
    assert "note: the checkpoint does not say what its base was" in capsys.readouterr().err
    run(replace(config, steps=3))
    assert "does not say what its base was" in capsys.readouterr().err
    assert refusal(lambda: run(replace(config, base="other", steps=4)))


def test_another_alpha_is_refused(place):
    config = lora(place)
    run(config)
    error = refusal(lambda: run(replace(config, lora_alpha=64.0, steps=3)))
    assert error.what == "the checkpoint was trained with --lora-alpha 32, this run has --lora-alpha 64"
    assert error.fix == "--lora-alpha 32, or another --folder"
    run(replace(config, lora_rank=4, steps=3))


def test_the_fix_for_another_model_works(place):
    config = lora(place)
    run(config)
    error = refusal(lambda: run(replace(config, lora_rank=8, steps=3)))
    assert error.fix == "--lora-rank 4, or another --folder"
    error = refusal(lambda: run(replace(config, lora_rank=0, base="", steps=3)))
    assert error.fix == f"--lora-rank 4 --base {place / 'first'}, or another --folder"
    error = refusal(lambda: run(replace(config, optimizer="muon", steps=3)))
    assert error.what == "the checkpoint was trained with --optimizer adamw, this run has --optimizer muon"
    assert error.fix == "--optimizer adamw, or another --folder"


def test_the_fix_for_another_objective_names_the_base_that_it_needs(place):
    config = dpo(place)
    run(config)
    plain = replace(config, objective="sft", data=(str(place / "chat"),), base="", steps=3)
    error = refusal(lambda: run(plain))
    assert error.fix.startswith(f"--objective dpo --base {place / 'mover' / 'checkpoints'}, or another --folder")


def test_a_model_of_a_path_is_not_named_by_its_last_part(place):
    config = full(place, "run", model="./first")
    run(config)
    turned = json.loads(Path("first/config.json").read_text()) | {"rope_theta": 7.0}
    Path("turned.json").write_text(json.dumps(turned))
    error = refusal(lambda: run(replace(config, model="turned.json", steps=3)))
    assert "rope_theta = 500000.0, this run's model has rope_theta = 7.0" in error.what
    assert error.fix == "--model ./first, or another --folder"
    run(replace(config, steps=3))
    os.rename("first", "moved")
    error = refusal(lambda: run(replace(config, model="turned.json", steps=4)))
    assert error.fix == "--model with the file or folder of that model, or another --folder"


def test_a_base_without_effect_is_noted_and_config_json_keeps_the_truth(place, capsys):
    config = full(place, "mover")
    run(replace(config, base="other", steps=3))
    note = f"note: --base {place / 'other'} has no effect: the run continues from its checkpoint, and began without one"
    assert note in capsys.readouterr().err
    assert json.loads(Path("mover/config.json").read_text())["base"] == ""
    based = full(place, "run", base="first")
    run(based)
    shutil.rmtree("other")
    run(replace(based, base="other", steps=3))  # its checkpoints need no base
    assert f"and began with {place / 'first'}" in capsys.readouterr().err
    run(replace(based, steps=3))
    assert "no effect" not in capsys.readouterr().err
    assert json.loads(Path("run/config.json").read_text())["base"] == str(place / "first")


def test_export_notes_a_base_without_effect(place, capsys):
    exported("mover", "hf", "--base", "first")
    assert "note: --base has no effect" in capsys.readouterr().err


def test_a_run_as_base_is_read_without_a_warning_of_torch(place):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(lora(place, base="mover"))
    assert not [str(w.message) for w in seen if "torch.distributed" in str(w.message)]


def test_a_fingerprint_sees_every_tensor_of_a_folder_and_not_its_place(place):
    path = place / "first" / "model.safetensors"
    before, content, file = fingerprint(path), path.read_bytes(), TensorFile(path)
    for entry in file.entries.values():
        at = file.base + (entry.start + entry.stop) // 2
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert fingerprint(path) != before
    path.write_bytes(content)
    shutil.copytree("first", "copy")
    assert describe("copy").contents == describe("first").contents
    assert describe("copy").contents != describe("other").contents


def test_a_step_that_goes_while_it_is_read_is_named(place):
    with pytest.raises(UserError, match=r"step-00000099 is not complete"):
        saved_weights.find_checkpoint("mover", 99)
