"""A run with history never starts over by itself: damaged, moved and imported checkpoints, and metrics that stay."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from single import corpus, events, metrics, run, settings, start

from trainwright.errors import UserError
from trainwright.train.metrics import read_lines
from trainwright.train.models.convert import export_main, import_main


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def config(data, tmp_path):
    return settings(data, tmp_path / "run")  # 8 steps, a checkpoint every 3


def checkpoint(config, step) -> Path:
    return Path(config.folder) / "checkpoints" / f"step-{step:08d}"


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_keeps_its_metrics(config):
    run(config)
    before = metrics(config)
    for folder in (Path(config.folder) / "checkpoints").glob("step-*"):
        (folder / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"step 8 is damaged \(manifest.json") as caught:
        run(replace(config, steps=10))
    assert "--resume never" in caught.value.fix
    assert metrics(config) == before


def test_a_run_whose_checkpoints_were_moved_is_refused_however_often_it_is_started(config, tmp_path):
    run(config)
    before = metrics(config)
    shutil.move(Path(config.folder) / "checkpoints", tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(UserError, match=r"this run saved step 8 to .*checkpoints, but there is no checkpoint in"):
            run(replace(config, steps=10))
    assert metrics(config) == before
    run(replace(config, steps=10, checkpoint_to=str(tmp_path / "moved")))
    assert [line["step"] for line in metrics(config)] == list(range(1, 11))


def test_a_result_of_an_earlier_version_is_history_too(config, tmp_path):
    run(config)
    journal = Path(config.folder) / "events.jsonl"
    kept = [line for line in journal.read_text().splitlines() if '"checkpoint"' not in line]
    journal.write_text("\n".join(kept) + "\n")
    shutil.rmtree(Path(config.folder) / "checkpoints")
    for _ in range(2):
        with pytest.raises(UserError, match="this run saved step 8"):
            run(config)


def test_starting_over_on_request_sets_metrics_aside(config):
    run(config)
    first = metrics(config)
    run(replace(config, steps=4, resume="never"))
    assert [line["step"] for line in metrics(config)] == [1, 2, 3, 4]
    assert read_lines(Path(config.folder) / "metrics-aside.jsonl") == first
    shutil.rmtree(Path(config.folder) / "checkpoints")
    with pytest.raises(UserError, match="this run saved step 4"):
        run(config)


def test_a_skipped_checkpoint_is_named(config, capsys):
    run(config)
    next(checkpoint(config, 8).glob("*.distcp")).unlink()
    run(replace(config, steps=9))
    assert events(config, "resume")[-1]["step"] == 6
    assert "checkpoint of step 8 is damaged" in capsys.readouterr().err
    notes = [e["text"] for e in events(config, "note")]
    assert any("step 8 is damaged" in text and "is missing" in text and text.endswith("skipped") for text in notes)


def test_a_crash_before_the_first_checkpoint_may_start_from_the_beginning(config, monkeypatch):
    from trainwright.train.loop import Trainer

    logged = Trainer._log_step

    def crash(self, done):
        logged(self, done)
        if done.step == 2:
            raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_log_step", crash)
        with pytest.raises(RuntimeError, match="crash"):
            run(config)
    run(config)
    assert [line["step"] for line in metrics(config)] == list(range(1, 9))
    assert [line["step"] for line in read_lines(Path(config.folder) / "metrics-aside.jsonl")] == [1, 2]


@pytest.fixture
def imported(config, tmp_path):
    """A run folder that begins with weights of another run, and those weights."""
    _, trainer = run(replace(config, folder=str(tmp_path / "source")))
    export_main([str(tmp_path / "source"), str(tmp_path / "hf")])
    import_main([str(tmp_path / "hf"), config.folder, "--model", config.model])
    return trainer


def test_an_imported_run_without_checkpoints_trains_from_the_imported_weights(config, imported):
    trainer = start(replace(config, checkpoint_every="never"))
    trainer.run()
    assert events(config, "resume")[0]["step"] == 0
    assert metrics(config)[0]["loss"] < 0.9 * 7.6, "random weights would start at ln(2048)"
    assert not checkpoint(config, 8).exists()


def test_a_step_that_does_not_exist_is_refused_also_without_checkpoints(config, imported):
    with pytest.raises(UserError, match="no complete checkpoint of step 77"):
        run(replace(config, checkpoint_every="never", resume="77"))
