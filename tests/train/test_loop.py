"""The loop on one process: its record, exact resume, guards, and errors before the first step."""

import json
import math
import signal
from dataclasses import asdict, fields, replace

import pytest
import torch
from single import MODEL, corpus, events, interrupt_at, metrics, poison, run, same, settings, start, weights

from trainwright.errors import UserError
from trainwright.train.__main__ import main
from trainwright.train.checkpoint.stores import FolderStore
from trainwright.train.config import parse_arguments
from trainwright.train.engine import Engine
from trainwright.train.loop import Trainer
from trainwright.train.metrics import Metrics


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads on a busy machine wait for each other; one also makes every sum come in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def config(data, tmp_path):
    return settings(data, tmp_path / "run")


def test_a_run_learns_and_leaves_the_documented_folder(config, tmp_path):
    """docs/train/index.md describes these files; whoever changes them changes both."""
    status, trainer = run(replace(config, steps=30, holdout=0.1, eval_every=10, checkpoint_every="10"))
    folder = tmp_path / "run"
    assert status == 0
    names = {p.name for p in folder.iterdir()}
    assert names == {
        "config.json", "metrics.jsonl", "events.jsonl", "result.json", "checkpoints", "tokenizer",
        "samples-rank00000.jsonl",
    }  # fmt: skip
    lines = metrics(config)
    assert [line["step"] for line in lines] == list(range(1, 31))
    assert set(lines[0]) == {f.name for f in fields(Metrics)}
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    assert lines[9]["eval_loss"] > lines[29]["eval_loss"] > 0
    assert lines[8]["eval_loss"] is None
    assert lines[-1]["tokens"] == 30 * 4 * 32
    assert 0 < lines[-1]["goodput"] <= 1
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["exit"], result["step"], result["checkpoint"]) == ("done", 0, 30, 30)
    assert result["last"] == lines[-1]
    assert json.loads((folder / "config.json").read_text()) == json.loads(json.dumps(asdict(trainer.config)))
    assert FolderStore(folder / "checkpoints").complete_steps() == [30, 20, 10]


def test_accumulated_microbatches_give_the_step_of_one(config, tmp_path):
    one, four = (replace(config, micro_batch=m, folder=str(tmp_path / str(m)), steps=5) for m in (4, 1))
    for each in (one, four):
        run(each)
    for a, b in zip(metrics(one), metrics(four), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_the_restart_is_exact_to_the_bit(config, tmp_path, monkeypatch, number):
    _, straight = run(replace(config, folder=str(tmp_path / "straight")))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5, number)
        status, _ = run(config)
    assert status == 75
    assert events(config, "stop")[0]["reason"] == number.name
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "requeue"
    status, resumed = run(config)
    assert status == 0
    assert events(config, "resume")[0]["step"] == 5
    assert same(weights(straight), weights(resumed))
    losses = [
        [line["loss"] for line in metrics(c)] for c in (config, replace(config, folder=str(tmp_path / "straight")))
    ]
    assert losses[0] == losses[1]


def test_a_crash_after_a_checkpoint_replays_to_the_same_bits(config, tmp_path, monkeypatch):
    _, straight = run(replace(config, folder=str(tmp_path / "straight")))

    def crash(self, done):
        if done.step == 5:
            raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_log_step", crash)
        with pytest.raises(RuntimeError):
            run(config)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "failed"
    _, resumed = run(config)
    assert events(config, "resume")[0]["step"] == 3
    assert same(weights(straight), weights(resumed))


def test_data_that_moved_is_still_the_same_data(config, tmp_path, monkeypatch):
    import shutil

    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        run(config)
    moved = replace(config, data=(str(shutil.copytree(config.data[0], tmp_path / "moved")),))
    assert run(moved)[1].state.seen == 8 * 4
    assert not events(config, "note")


def test_other_data_is_counted_anew_and_said_so(config, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        run(config)
    _, trainer = run(replace(config, seed=1))
    assert trainer.state.seen == 5 * 4
    assert "restarts at 0" in events(config, "note")[0]["text"]


def test_a_finished_run_has_nothing_left_to_do(config, capsys):
    run(config)
    before = metrics(config)
    assert run(config)[0] == 0
    assert metrics(config) == before


def test_nan_skip_leaves_the_weights_alone(config, monkeypatch):
    poison(monkeypatch, 4, math.nan)
    before = {}
    act = Trainer._apply_guard

    def watch(self, action, why):
        if action == "skip":
            before.update(weights(self))
        return act(self, action, why)

    monkeypatch.setattr(Trainer, "_apply_guard", watch)
    status, _ = run(replace(config, steps=4, checkpoint_every="1"))
    assert status == 0
    [event] = events(config, "guard")
    assert event["action"] == "skip"
    assert event["samples"] == [12, 16]
    trainer = start(replace(config, steps=4))
    trainer._restore(trainer.resumer.load(4))
    assert same(before, weights(trainer))


def test_a_gradient_that_is_not_a_number_is_skipped_too(config, monkeypatch):
    true = Engine.forward_backward
    calls = {"n": 0}

    def forward_backward(self, microbatches):
        answer = true(self, microbatches)
        calls["n"] += 1
        if calls["n"] == 2:
            next(iter(self.params.values())).grad[0] = math.inf
        return answer

    monkeypatch.setattr(Engine, "forward_backward", forward_backward)
    _, trainer = run(replace(config, steps=3))
    [event] = events(config, "guard")
    assert event["why"] == "gradient norm is inf"
    assert all(torch.isfinite(w).all() for w in weights(trainer).values())


def test_nan_rewind_goes_back_and_passes_over_the_bad_batch(config, monkeypatch):
    poison(monkeypatch, 5, math.inf)
    status, trainer = run(replace(config, on_nan="rewind"))
    assert status == 0
    assert events(config, "resume")[0]["step"] == 3
    assert trainer.state.rewinds == 1
    assert trainer.state.seen == (5 + 5) * 4  # five steps before the rewind, five after it
    assert [line["step"] for line in metrics(config)] == list(range(1, 9))
    assert all(math.isfinite(line["loss"]) for line in metrics(config))


def test_reading_one_step_late_as_on_a_gpu_changes_nothing_but_when(config, tmp_path, monkeypatch):
    _, usual = run(replace(config, on_nan="rewind", folder=str(tmp_path / "usual")))
    late = start(replace(config, on_nan="rewind"))
    late.late = True
    assert late.run() == 0
    assert same(weights(usual), weights(late))
    both = (metrics(config), metrics(replace(config, folder=str(tmp_path / "usual"))))
    assert [[line["step"], line["loss"]] for line in both[0]] == [[line["step"], line["loss"]] for line in both[1]]
    poison(monkeypatch, 5, math.nan)
    again = start(replace(config, on_nan="rewind", folder=str(tmp_path / "again")))
    again.late = True
    assert again.run() == 0
    assert again.state.rewinds == 1
    assert again.state.step == 8
    assert all(torch.isfinite(w).all() for w in weights(again).values())


def test_nan_stop_says_where(config, monkeypatch, tmp_path):
    poison(monkeypatch, 5, math.nan)
    with pytest.raises(UserError, match="stopped at step 5: loss is nan"):
        run(replace(config, on_nan="stop"))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "failed"


def test_rewind_without_a_checkpoint_is_an_error(config, monkeypatch):
    poison(monkeypatch, 1, math.nan)
    with pytest.raises(UserError, match="cannot rewind"):
        run(replace(config, on_nan="rewind", checkpoint_every="never"))


def test_rewind_before_the_first_checkpoint_says_that_there_is_none(config, monkeypatch):
    poison(monkeypatch, 1, math.nan)
    with pytest.raises(UserError, match="loss is nan, and there is no checkpoint yet") as caught:
        run(replace(config, on_nan="rewind"))
    assert "`skip` instead of `rewind`" in caught.value.fix


def test_a_spike_is_seen_against_the_usual_spread(config, monkeypatch):
    poison(monkeypatch, 25, 50.0)
    run(replace(config, steps=26, on_spike="skip", checkpoint_every="never"))
    [event] = events(config, "guard")
    assert (event["action"], event["step"]) == ("skip", 24)


def test_a_full_disk_ends_the_run_with_the_old_checkpoint_whole(config, tmp_path, monkeypatch):
    from trainwright.train.checkpoint import stores

    publish = stores.FolderStore.publish

    def full(self, step, manifest):
        if step == 6:
            raise OSError(28, "No space left on device")
        publish(self, step, manifest)

    monkeypatch.setattr(stores.FolderStore, "publish", full)
    with pytest.raises(UserError, match=r"no space left for a checkpoint: it needs [\d.]+ GB, [\d.,]+ GB are free"):
        run(config)
    assert FolderStore(tmp_path / "run" / "checkpoints").complete_steps() == [3]


def words(config, *more):
    return ["--model", config.model, "--data", *config.data, "--folder", config.folder, "--sequence", "32", *more]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--parallel", "shard=3"], "the plan needs 3 ranks, but there are 1"),
        (["--model", "llama3.2-1b-debug", "--sequence", "1000000"], "the context is 1,000,000 tokens, the data holds"),
        (["--batch", "3", "--micro-batch", "2"], "a global batch of 3 samples does not divide over 1 data ranks x"),
        (["--warmup", "200"], "200 warmup steps and 0 decay steps are more than the 100 steps"),
        (["--eval-every", "5"], "--eval-every without data"),
        (["--log-every", "0"], "--log-every is 0; it must be at least 1"),
        (["--holdout", "1"], "it must be below 1"),
        (["--resume", "latest"], "--resume is 'latest'"),
        (["--checkpoint-every", "often"], "'often' is not an interval"),
        (["--data", "/nowhere"], "no such data folder"),
        (["--model", "lama3.2-1b"], "there is no model named 'lama3.2-1b'"),
        (["--holdout", "0.00001", "--eval-every", "5"], "leaves 0 to evaluate on"),
        (["--lr", "nan"], "--lr is nan; it must be a finite number"),
        (["--lr", "inf"], "--lr is inf; it must be a finite number"),
        (["--lr", "-1"], "--lr is -1.0; it must be at least 0"),
        (["--mask-rate", "2"], "fix: --mask-rate 0.15"),
        (["--holdout", "nan"], "fix: --holdout 0.01"),
        (["--teacher-momentum", "5"], "--teacher-momentum is 5.0; it is a share, at most 1"),
        (
            ["--lora-rank", "257", "--base", "random"],
            "--lora-rank is 257, more than any width of the model: at most 256",
        ),
        (["--model", "llama3-8b-debu"], "did you mean 'llama3-8b-debug'?"),
        (["--model", "/nope.json"], "fix: the path of a config.json"),
        (["--model", "/tmp"], "/tmp: the folder has no config.json"),
        (["--watchdog", "inf"], "--watchdog is inf"),
        (["--beta2", "1"], "--beta2 is 1.0; it must be below 1"),
        (["--min-lr", "3e-5", "--min-lr", "2"], "--min-lr is 2.0; it is a share of --lr"),
    ],
)
def test_bad_input_is_an_error_before_the_first_step(config, capsys, tmp_path, more, message):
    assert main(words(config, *more)) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "fix:" in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_checkpoint_of_another_model_is_refused_with_both_numbers(config, capsys):
    run(replace(config, steps=1))
    assert main(words(replace(config, model="llama3.1-8b-debug"))) == 2
    shown = capsys.readouterr().err
    assert "the checkpoint's model has hidden = 64, this run's model has hidden = 128" in shown
    assert "(gpt2-124m-debug, llama3.1-8b-debug)" in shown


def test_a_truncated_shard_is_an_error_before_the_first_step(config, capsys, tmp_path):
    import shutil

    folder = shutil.copytree(config.data[0], tmp_path / "cut")
    shard = folder / "shard-00000.bin"
    size = shard.stat().st_size
    with shard.open("r+b") as handle:
        handle.truncate(size // 2)
    assert main(words(replace(config, data=(str(folder),)))) == 2
    assert f"{size // 2:,} bytes, the manifest says {size:,} bytes" in capsys.readouterr().err


def test_a_config_file_is_read_and_the_command_line_goes_first(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"model": MODEL, "data": ["a:3", "b"], "lr": 1, "steps": 7, "isolate": False}))
    config = parse_arguments(["--config", str(path), "--steps", "9", "--compile"])
    assert (config.data, config.lr, config.steps, config.isolate, config.compile) == (("a:3", "b"), 1, 9, False, True)
    again = parse_arguments(["--model", MODEL, "--data", "a", "b:2", "--data", "c"])
    assert again.data == ("a", "b:2", "c"), "said twice, nothing is lost"
    for wrong, message in [({"stepz": 3}, "no option 'stepz'"), ({"steps": "3"}, "it must be int"), ([], "not a JSON")]:
        path.write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=message):
            parse_arguments(["--config", str(path)])


def test_every_option_survives_the_run_folder(config, tmp_path):
    run(replace(config, steps=1))
    saved = tmp_path / "run" / "config.json"
    assert parse_arguments(["--config", str(saved)]).steps == 1


def test_a_spot_notice_saves_and_asks_to_be_started_again(config, monkeypatch):
    from trainwright.train import signals

    monkeypatch.setattr(signals, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(signals, "spot_notice", lambda: True)
    status, trainer = run(replace(config, steps=500, spot_notices=True, lr=1e-4))
    assert status == 75
    assert events(config, "stop")[0]["reason"] == "spot interruption notice"
    assert trainer.parts.checkpointer.saved == trainer.state.step


def test_weights_come_from_and_go_to_hugging_face(config, tmp_path, capsys):
    run(replace(config, steps=2))
    assert main(["export", config.folder, str(tmp_path / "hf")]) == 0
    assert {"config.json", "model.safetensors"} <= {p.name for p in (tmp_path / "hf").iterdir()}


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_export_finds_checkpoints_that_went_elsewhere(config, tmp_path, where, request):
    to = request.getfixturevalue("s3") if where == "s3" else str(tmp_path / "elsewhere")
    run(replace(config, steps=2, checkpoint_to=to))
    for number, named in enumerate((config.folder, to)):
        out = tmp_path / "out" / str(number)
        assert main(["export", named, str(out)]) == 0
        assert (out / "model.safetensors").is_file()
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"0", "1"}


def test_tensorboard_is_written_or_its_absence_explained(config, tmp_path):
    wanted = replace(config, steps=2, tensorboard=True)
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="needs the 'tensorboard' package"):
            run(wanted)
    else:
        run(wanted)
        assert list((tmp_path / "run" / "tensorboard").iterdir())
