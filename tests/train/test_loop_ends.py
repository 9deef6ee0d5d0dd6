"""How a run ends, and what its folder says of it: going back to a step, guards that never let go, signals at any time,
exit status, two runs in one folder."""

import contextlib
import json
import math
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from single import MODEL, corpus, events, interrupt_at, metrics, poison, run, same, settings, start, weights

from trainwright.errors import UserError
from trainwright.train import guards, record
from trainwright.train.__main__ import main
from trainwright.train.checkpoint.checkpointer import Checkpointer
from trainwright.train.checkpoint.stores import FolderStore
from trainwright.train.engine import Engine
from trainwright.train.guards import LossGuard, Watchdog
from trainwright.train.loop import Trainer
from trainwright.train.metrics import Journal


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def config(data, tmp_path):
    return replace(settings(data, tmp_path / "run"), checkpoint_every="2", keep_last=2)


def saved(config):
    return FolderStore(Path(config.folder) / "checkpoints").complete_steps()


def result(config):
    return json.loads((Path(config.folder) / "result.json").read_text())


def words(config, *more):
    common = ["--model", MODEL, "--data", *config.data, "--folder", config.folder, "--sequence", "32", "--batch", "4"]
    return [*common, "--checkpoint-every", "2", *more]


def test_starting_afresh_is_not_undone_by_the_checkpoints_of_before(config):
    """The newest steps must be the new run's own, for the next start, for --keep-last and for export."""
    run(replace(config, seed=1))
    assert saved(config) == [8, 6]
    _, afresh = run(replace(config, steps=4, resume="never"))
    assert saved(config) == [4, 2]
    _, again = run(replace(config, steps=4))
    assert same(weights(again), weights(afresh))
    kept = sorted(p.name for p in (Path(config.folder) / "checkpoints").iterdir() if "aside" in p.name)
    assert kept == ["step-00000006.aside", "step-00000008.aside"]
    assert "set aside" in events(config, "note")[0]["text"]


def test_going_back_to_a_step_leaves_its_old_future(config):
    run(replace(config, keep_last=9))
    run(replace(config, steps=5, resume="4", keep_last=9))
    assert saved(config) == [5, 4, 2]


@pytest.mark.parametrize("count", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
def test_a_scheduler_s_restart_goes_on_whatever_the_command_said(config, monkeypatch, count):
    run(replace(config, steps=4, resume="never"))
    monkeypatch.setenv(count, "1")
    run(replace(config, steps=6, resume="never"))
    assert events(config, "resume")[-1]["step"] == 4


def test_a_loss_that_stays_nan_ends_the_run(config, monkeypatch):
    """Skipped for ever, a run would use up its days and end well, having learnt nothing."""
    poison(monkeypatch, 4, math.nan, until=10_000)
    with pytest.raises(UserError, match=r"loss is nan, 16 steps in a row"):
        run(replace(config, steps=100))
    assert len(events(config, "guard")) == 16


def test_a_loss_on_a_new_level_is_reported_a_few_times_and_then_usual():
    guard = LossGuard("skip", "log", 8.0)
    actions = [guard.judge(2.0 if step < 40 else 4.0 + step % 3 / 100)[0] for step in range(200)]
    assert 20 < actions.count("log") < 60
    assert actions[-50:] == ["ok"] * 50
    assert LossGuard("skip", "skip", 8.0).judge(2.0) == ("ok", "")


def test_rewinds_are_counted_from_the_last_new_checkpoint(config, monkeypatch):
    """A run of weeks may rewind more than a few times; one that gets nowhere may not."""
    true, calls = Engine.forward_backward, {"n": 0}

    def forward_backward(self, microbatches):
        loss, tokens = true(self, microbatches)
        calls["n"] += 1
        return (loss * math.nan if calls["n"] % 4 == 0 else loss), tokens

    monkeypatch.setattr(Engine, "forward_backward", forward_backward)
    status, trainer = run(replace(config, steps=14, on_nan="rewind"))
    assert status == 0
    assert trainer.state.rewinds > guards.MAX_REWINDS


def test_a_rewind_that_gets_nowhere_ends(config, monkeypatch):
    poison(monkeypatch, 4, math.nan, until=10_000)
    with pytest.raises(UserError, match="cannot rewind: loss is nan, after 3 rewinds"):
        run(replace(config, on_nan="rewind"))


def test_what_was_not_looked_at_is_not_saved_by_the_clock(config, monkeypatch):
    """On a GPU numbers are read a step late; a save by the clock must not keep a step that turns out bad."""
    poison(monkeypatch, 5, math.nan)
    late = start(replace(config, on_nan="rewind", checkpoint_every="0.000001s"))
    late.late = True
    assert late.run() == 0
    assert events(config, "resume")[0]["step"] == 4


def test_metrics_are_json_also_when_there_is_no_number(config, monkeypatch):
    poison(monkeypatch, 2, math.nan)
    run(replace(config, steps=3))
    text = (Path(config.folder) / "metrics.jsonl").read_text() + (Path(config.folder) / "result.json").read_text()
    assert "NaN" not in text
    assert metrics(config)[1]["loss"] is None
    assert metrics(config)[2]["loss"] > 0


def test_the_result_of_an_earlier_start_is_not_taken_for_this_one_s(config, monkeypatch):
    run(replace(config, steps=2))
    there = []
    original = Trainer._log_step

    def tell(self, done):
        original(self, done)
        there.append((Path(config.folder) / "result.json").exists())

    monkeypatch.setattr(Trainer, "_log_step", tell)
    run(replace(config, steps=3))
    assert there == [False]
    assert result(config)["step"] == 3


def test_a_run_that_had_begun_exits_with_1_and_says_the_same(config, monkeypatch, capsys):
    poison(monkeypatch, 3, math.nan)
    assert main(words(config, "--on-nan", "stop", "--steps", "5")) == 1
    assert result(config)["exit"] == 1
    assert "error: " in capsys.readouterr().err
    with pytest.raises(UserError) as caught:
        start(replace(config, resume="77")).run()
    assert caught.value.__cause__ is not caught.value, "an error is not its own reason"
    assert main(words(config, "--resume", "77")) == 2
    assert result(config)["exit"] == 2


@pytest.mark.parametrize("moment", ["_start", "_finish"])
def test_a_signal_outside_of_the_steps_is_taken_too(config, monkeypatch, moment):
    true = getattr(Trainer, moment)

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGTERM)
        true(self, *args)

    monkeypatch.setattr(Trainer, moment, interrupted)
    status, trainer = run(config)
    assert (status, trainer.state.step) == ((75, 0) if moment == "_start" else (0, 8))
    assert saved(config)[0] == trainer.state.step


def test_a_run_that_saves_nothing_does_not_say_that_it_did(config, monkeypatch, capsys):
    interrupt_at(monkeypatch, 3)
    with pytest.raises(UserError, match="stopped at step 3 by SIGTERM, and nothing was saved"):
        run(replace(config, checkpoint_every="never"))
    assert result(config)["status"] == "failed"


@pytest.mark.parametrize("every", ["never", "2"])
def test_ctrl_c_promises_a_save_only_where_there_is_one(config, monkeypatch, capfd, every):
    interrupt_at(monkeypatch, 3, signal.SIGINT)
    never = pytest.raises(UserError, match="nothing was saved") if every == "never" else contextlib.nullcontext()
    with never:
        run(replace(config, checkpoint_every=every))
    shown = capfd.readouterr().err
    assert ("saving after this step" in shown) == (every == "2")
    if every == "never":
        assert "stopping after this step; nothing is saved (--checkpoint-every never)" in shown


@pytest.mark.parametrize("steps", [1, 4])
def test_a_run_that_has_its_steps_says_that_nothing_is_left(config, capsys, steps):
    run(replace(config, steps=4))
    assert "nothing left to train" not in capsys.readouterr().err
    assert run(replace(config, steps=steps))[0] == 0
    shown = capsys.readouterr().err
    assert f"already at step 4 and --steps is {steps}: nothing left to train; a larger --steps continues" in shown


def test_two_runs_do_not_share_a_folder(config, monkeypatch):
    monkeypatch.setattr(record, "LOCK_TIMEOUT", 0.2)
    first = start(config)
    first._start()
    with pytest.raises(UserError, match="another run is using this folder"):
        run(config)
    assert first.run() == 0
    assert run(replace(config, steps=10))[0] == 0


def test_a_run_that_is_just_leaving_is_waited_for_and_that_is_no_hang(config, monkeypatch):
    first = start(config)
    first._start()
    timer = threading.Timer(0.3, first.record.close)
    timer.start()
    second, beats = start(config), []
    lock = second.record._lock
    monkeypatch.setattr(second.record, "_lock", lambda: beats.append(second.watchdog.beat_at) or lock())
    assert second.run() == 0
    assert beats == [math.inf]
    timer.join()


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_run_folder_that_cannot_be_made_is_reported(config, tmp_path, capsys, folder):
    (tmp_path / "file").touch()
    assert main(words(replace(config, folder=str(tmp_path / folder)), "--checkpoint-every", "never")) == 2
    assert "cannot write into the run folder" in capsys.readouterr().err


def test_a_folder_of_checkpoints_that_cannot_be_written_is_reported_before_the_first_step(config, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(words(config, "--checkpoint-to", str(tmp_path / "file" / "below"))) == 2
    assert "cannot write to the checkpoint folder: Not a directory" in capsys.readouterr().err
    assert not (Path(config.folder) / "metrics.jsonl").exists()


def test_a_full_disk_under_the_record_is_reported_with_the_place(config, monkeypatch, capsys):
    append = record.Journal._append

    def full(self, name, row):
        if row.get("step") == 3 and name == "metrics.jsonl":
            raise OSError(28, "No space left on device", str(self.folder / name))
        append(self, name, row)

    monkeypatch.setattr(record.Journal, "_append", full)
    assert main(words(config, "--steps", "4")) == 1
    shown = capsys.readouterr().err
    assert "no space left" in shown
    assert "metrics.jsonl" in shown
    assert "Traceback" not in shown


def out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def out_of_host_memory(*_):
    torch.empty(1 << 60, dtype=torch.uint8)


@pytest.mark.parametrize("failure", [out_of_memory, out_of_host_memory])
@pytest.mark.parametrize("where", ["_stage", "_global_tokens"])
def test_no_memory_is_reported_with_advice_while_building_and_while_training(
    config, monkeypatch, capsys, failure, where
):
    from trainwright.train import build

    monkeypatch.setattr(*((build, "_stage") if where == "_stage" else (Engine, "_global_tokens")), failure)
    assert main(words(config, "--micro-batch", "4")) == (2 if where == "_stage" else 1)
    shown = capsys.readouterr().err
    assert "out of memory" in shown
    assert "--micro-batch 2, --recompute full" in shown
    assert "Traceback" not in shown


def test_no_host_memory_names_the_amount_and_the_sequence(config, monkeypatch, capsys):
    """Not the words of torch's allocator; and a CPU has no other memory to offload to."""
    monkeypatch.setattr(Engine, "_global_tokens", out_of_host_memory)
    assert main(words(config, "--sequence", "32")) == 1
    shown = capsys.readouterr().err
    assert "out of memory: 1,073,741,824.0 GiB were asked for at once, this machine has " in shown
    assert "a --sequence below 32" in shown
    assert "alloc_cpu" not in shown
    assert "--offload-optimizer" not in shown


def test_smaller_micro_batches_that_are_advised_divide_the_batch():
    assert [guards.smaller(n) for n in (1, 2, 9, 5, 8)] == ["", "--micro-batch 1, ", "--micro-batch 3, ",
                                                           "--micro-batch 1, ", "--micro-batch 4, "]  # fmt: skip


def test_loading_saving_and_evaluating_for_long_is_no_hang(config, monkeypatch):
    """All three may rightly take longer than the watchdog waits for a step."""
    run(replace(config, steps=2))
    trainer = start(replace(config, steps=4, holdout=0.2, eval_every=4, eval_batches=5))
    clock, beats = {}, []

    def watched(true):
        def call(*args):
            clock.setdefault(true.__name__, []).append(trainer.watchdog.beat_at)
            return true(*args)

        return call

    for name in ("load", "save", "wait"):
        monkeypatch.setattr(Checkpointer, name, watched(getattr(Checkpointer, name)))
    monkeypatch.setattr(trainer.watchdog, "beat", lambda: beats.append(trainer.state.step))
    trainer.run()
    assert set(clock) == {"load", "save", "wait"}
    assert all(at == math.inf for times in clock.values() for at in times)
    assert beats.count(4) == 10 + 3, "each batch of the evaluation; the step, its save, and the wait for that"


def test_a_hang_is_reported_also_where_the_folder_cannot_be_written(tmp_path, monkeypatch, capfd):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    Watchdog(0, tmp_path / "gone", 3)._fire(60)
    assert left == [guards.EXIT_HUNG]
    shown = capfd.readouterr().err
    assert "test_a_hang_is_reported_also" in shown
    assert "rank 3: no step for 60 s" in shown


def test_a_missing_mirror_is_an_error_on_every_rank(config, monkeypatch):
    """Only rank 0 writes there, but if it alone failed, the others would wait for it."""
    import importlib.util

    true = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else true(name))
    from trainwright.train.setup import check
    from trainwright.train.world import World

    with pytest.raises(UserError, match="needs the 'wandb' package"):
        check(replace(config, wandb="project"), World(1, 2, 1, torch.device("cpu")))


def test_microbatches_that_do_not_interleave_are_reported_before_anything_is_built(config):
    from trainwright.train import setup
    from trainwright.train.world import World

    wrong = replace(config, parallel="pp=2,virtual=2", batch=3, micro_batch=1)
    with pytest.raises(UserError, match="3 micro-batches cannot be interleaved over 2") as caught:
        setup.check(wrong, World(0, 2, 0, torch.device("cpu")))
    assert "makes 4 micro-batches" in caught.value.fix


def test_all_starts_of_a_run_report_to_one_wandb_run(config, monkeypatch):
    """The package itself needs an account or a server; what it is asked for is seen here."""
    import importlib.util
    import sys
    import types

    asked, logged = [], []
    there = types.SimpleNamespace(log=lambda values, step: logged.append((step, values["loss"])), finish=lambda: None)
    fake = types.SimpleNamespace(init=lambda **words: asked.append(words) or there)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    true = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: true("json" if name == "wandb" else name))
    for steps in (2, 4):
        run(replace(config, steps=steps, wandb="project"))
    assert [(a["project"], a["resume"]) for a in asked] == [("project", "allow")] * 2
    assert asked[0]["id"] == asked[1]["id"]
    assert [step for step, _ in logged] == [1, 2, 3, 4]
    run(replace(config, steps=1, wandb="project", resume="never"))
    assert len(events(config, "start")) == 3


def test_the_clock_of_a_run_begun_afresh_starts_anew(tmp_path):
    journal = Journal(tmp_path, active=True)
    lines = [{"event": "start", "time": 10.0}, {"event": "start", "time": 20.0, "afresh": True}]
    lines += [{"event": "save", "time": 25.0}, {"event": "start", "time": 30.0}]
    assert journal.first_start() == pytest.approx(time.time(), abs=60)
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:1]))
    assert journal.first_start() == 10.0
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert journal.first_start() == 20.0


def test_a_run_that_saves_elsewhere_from_now_on_goes_on_from_its_folder(config, tmp_path):
    """`train import` begins a run in its folder; with --checkpoint-to its weights must not be passed over silently."""
    run(replace(config, steps=4))
    moved = replace(config, steps=4, checkpoint_to=str(tmp_path / "elsewhere"))
    _, trainer = run(moved)
    assert events(config, "resume")[-1]["step"] == 4
    assert FolderStore(tmp_path / "elsewhere").complete_steps() == [4]
    assert trainer.parts.checkpointer.store.where == str(tmp_path / "elsewhere")
    run(replace(moved, steps=6))
    assert FolderStore(tmp_path / "elsewhere").complete_steps() == [6, 4]
    assert saved(config) == [4, 2]


def test_steps_between_two_lines_count_for_the_goodput_after_a_restart(config):
    run(replace(config, steps=6, log_every=100))
    trainer = start(replace(config, steps=6))
    trainer._restore(trainer.resumer.load(4))
    assert trainer.state.productive > 0


def test_no_thread_outlives_a_run_that_failed_early(config, monkeypatch):
    """One that still takes memory for checkpoints when Python ends would abort it: exit status 134 instead of 2."""
    from trainwright.train.checkpoint import staging

    take, gate = staging.host_buffers, threading.Event()
    monkeypatch.setattr(staging, "host_buffers", lambda *args: (gate.wait(30), take(*args))[1])
    timer = threading.Timer(0.3, gate.set)
    timer.start()
    with pytest.raises(UserError, match="no complete checkpoint of step 77") as caught:
        run(replace(config, resume="77"))
    assert "leave out --resume" in caught.value.fix
    assert gate.is_set()
    assert "trainwright-alloc" not in {thread.name for thread in threading.enumerate()}
    timer.join()
