"""DSP001 on keys that DeepSpeed's own models take, ignore or refuse. Each sample was given to DeepSpeedConfig of
0.19.8, 0.18.9, 0.17.6 and 0.16.9."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.check.finding import Finding
from trainwright.check.readers.recognise import read_file

Run = Callable[..., list[Finding]]

FP16_KEYS = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 9, "hysteresis": 2, "min_loss_scale": 1}


def config(**sections: Any) -> str:
    return json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, **sections}, indent=1)


@pytest.mark.parametrize("name", ["bf16", "bfloat16"])
def test_keys_of_fp16_under_bf16_are_one_warning_that_names_the_release(run: Run, name: str) -> None:
    (finding,) = run("ds.json", config(**{name: {"enabled": True, **FP16_KEYS}}), "DSP001")

    assert finding.level == "warning", "an older release may be meant"
    assert all(key in finding.message for key in FP16_KEYS)
    assert "0.17.1" in finding.message
    assert "fp16" in finding.fix


def test_a_section_that_is_off_is_read_all_the_same(run: Run) -> None:
    assert len(run("ds.json", config(bf16={"enabled": False, "loss_scale": 0}), "DSP001")) == 1


@pytest.mark.parametrize(
    "sections",
    [
        {"bf16": {"enabled": True, "immediate_grad_update": True, "check_grad_overflow": False}},
        {"bf16": {"enabled": "auto", "loss_scale": "auto"}},  # DeepSpeed drops every key whose value is auto
        {"fp16": {"enabled": True, "auto_cast": False, **FP16_KEYS, "consecutive_hysteresis": False}},
        {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}},
        {"bf16": None},
        {"wandb": {"enabled": True, "group": "a", "team": "b", "project": "c"}},
        {"compile": {"enabled": True, "backend": "inductor"}},  # of 0.14
        {"tensor_parallel": {"autotp_size": 2, "partition_config": {"anything": 1}}},
        {"activation_checkpointing": {"partition_activations": True, "of_somebody": 1}},  # ignored
        {"flops_profiler": {"enabled": True, "of_somebody": 1}},
        {"aio": {"block_size": 1048576, "of_somebody": 1}},
        {"optimizer": {"type": "AdamW", "params": {"of_somebody": 1}, "of_somebody": 1}},
        {"zero_optimization": {"stage": 3, "elastic_checkpoint": True, "stage3_prefetch_bucket_size": 5}},
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5, "fast_init": True}}},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "none", "max_in_cpu": 1, "other": "auto"}}},
    ],
)
def test_what_a_release_takes_is_not_reported(run: Run, sections: dict[str, Any]) -> None:
    assert run("ds.json", config(**sections), "DSP001") == []


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"fp16": {"enabled": True, "dynamic_loss_scale": True}}, "fp16 has no key dynamic_loss_scale"),
        ({"fp16": {"enabled": True, "loss_scale_windw": 5}}, "fp16 has no key loss_scale_windw"),
        ({"tensor_parallel": {"enabled": True, "tp_size": 2}}, "tensor_parallel has no keys enabled and tp_size"),
        ({"wandb": {"enabled": True, "entity": "b"}}, "wandb has no key entity"),
        ({"tensorboard": {"enabled": True, "log_dir": "b"}}, "tensorboard has no key log_dir"),
        ({"csv_monitor": {"enabled": True, "path": "b"}}, "csv_monitor has no key path"),
        ({"comms_logger": {"enabled": True, "all": 1}}, "comms_logger has no key all"),
        ({"hybrid_engine": {"enabled": True, "tp": 1}}, "hybrid_engine has no key tp"),
        ({"zero_optimization": {"stage": 2, "_comment": "x"}}, "zero_optimization has no key _comment"),
        ({"zero_optimization": {"cpu_offload_params": True}}, "zero_optimization has no key cpu_offload_params"),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "buffer_size": 5}}},
            "zero_optimization.offload_optimizer has no key buffer_size",
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pipeline_read": True}}},
            "zero_optimization.offload_param has no key pipeline_read",
        ),
    ],
)
def test_a_section_that_takes_no_other_key_is_reported(run: Run, sections: dict[str, Any], words: str) -> None:
    (finding,) = run("ds.json", config(**sections), "DSP001")

    assert finding.message.partition(":")[0] == words
    assert finding.level == ("warning" if "since" in finding.message else "error")


@pytest.mark.parametrize(("value", "written"), [(True, "true"), (False, "false"), ("auto", '"auto"')])
def test_a_precision_that_is_no_section_is_an_error(run: Run, value: Any, written: str) -> None:
    (finding,) = run("ds.json", config(bf16=value), "DSP001")

    assert (finding.level, finding.fix) == ("error", f'write {{"enabled": {written}}}')


def test_what_older_releases_took_and_the_newest_refuses_is_a_note(run: Run) -> None:
    zero = {"stage": 3, "mics_shard_size": 8}
    findings = run("ds.json", config(amp={"enabled": False}, sparse_gradients=False, zero_optimization=zero), "DSP001")

    assert [finding.level for finding in findings] == ["info"] * 3
    assert all("0.19.8" in finding.message for finding in findings)


def test_a_file_of_another_program_that_has_such_sections_is_left_alone() -> None:
    text = config(fp16={"fp16": True, "type": "bfloat16"}, num_layers=2, hidden_size=8, pipe_parallel_size=1, vocab=5)

    assert read_file("neox.json", text) is None


def test_each_misspelt_key_of_a_section_is_told_what_was_meant(run: Run) -> None:
    zero = {"stage": 3, "offload_optimiser": {"device": "cpu"}, "overlap_com": True, "of_somebody": 1}
    (finding,) = run("ds.json", config(zero_optimization=zero), "DSP001")
    assert (
        finding.fix
        == "write offload_optimizer for offload_optimiser and overlap_comm for overlap_com; remove the others"
    )


def test_a_message_names_some_of_many_keys(run: Run) -> None:
    zero = {"stage": 3, **{f"of_somebody_{n}": n for n in range(500)}}
    (finding,) = run("ds.json", config(zero_optimization=zero), "DSP001")
    assert "and 492 more" in finding.message
    assert len(finding.message) < 300


def test_a_comment_is_no_key_of_another_program(run: Run) -> None:
    text = json.dumps({"zero_optimization": {"stage": 2, "overlap_com": True}, "_comment": "x", "//": "y"})
    assert len(run("ds.json", text, "DSP001")) == 1


def test_keys_of_zero_at_the_top_are_ignored_there(run: Run) -> None:
    """DeepSpeed 0.19.8 loads it, and the setting stays as it was."""
    text = config(stage3_gather_16bit_weights_on_model_save=True, overlap_comm=True)
    (finding,) = run("ds.json", text, "DSP001")
    assert finding.level == "warning"
    assert "overlap_comm" in finding.message
    assert "zero_optimization" in finding.fix


@pytest.mark.parametrize("sections", [{"zero_allow_untested_optimizer": True}, {"stage": 2}, {"gradient_clipping": 1}])
def test_keys_of_the_top_stay_there(run: Run, sections: dict[str, Any]) -> None:
    assert run("ds.json", config(**sections), "DSP001") == []


@pytest.mark.parametrize(
    ("sections", "fix"),
    [
        ({"gradient_clipping": 1.0}, "move it to the top of the file. The Trainer stops unless"),
        ({"zero_force_ds_cpu_optimizer": False}, "move it to the top of the file"),
        ({"train_micro_batch_size_per_gpu": 1}, "remove it: train_micro_batch_size_per_gpu at the top does it"),
        ({"bf16": {"enabled": True}}, "remove it"),
        ({"zero_stage": 2}, "remove it"),
        ({"overlap_communication": True}, "did you mean overlap_comm?"),
        (
            {"stage3_gather_bf16_weights_on_model_save": True},
            "did you mean stage3_gather_16bit_weights_on_model_save?",
        ),
    ],
)
def test_a_key_of_the_top_goes_there_and_does_not_get_lost(run: Run, sections: dict[str, Any], fix: str) -> None:
    (finding,) = run("ds.json", config(zero_optimization={"stage": 2, **sections}), "DSP001")

    assert finding.fix.startswith(fix)


def test_a_trainer_fills_in_only_what_it_knows(run: Run) -> None:
    zero = {"stage": 2, "prescale_gradients": False, "gradient_clipping": 1.0, "enable": True}
    (finding,) = run("ds.json", config(train_micro_batch_size_per_gpu="auto", zero_optimization=zero), "DSP001")

    assert finding.fix.startswith(
        "prescale_gradients: move it to the top of the file; gradient_clipping: remove it, and"
    )
    assert finding.fix.endswith("; remove the others")


def test_zero_stage_in_its_section_is_the_stage(run: Run) -> None:
    (finding,) = run("ds.json", config(zero_optimization={"zero_stage": 2, "overlap_comm": True}), "DSP001")

    assert finding.fix == "did you mean stage?"


@pytest.mark.parametrize(
    ("sections", "fix"),
    [
        ({"fp16": True}, 'write {"enabled": true} or {"enabled": false}: enable fp16 or bf16, not both'),
        ({"fp16": {"enable": True}}, "did you mean enabled? Then enable fp16 or bf16, not both"),
        ({"float16": {"enabled": True}}, "did you mean fp16? Then enable fp16 or bf16, not both"),
    ],
)
def test_a_fix_that_enables_a_precision_leaves_one(run: Run, sections: dict[str, Any], fix: str) -> None:
    (finding,) = run("ds.json", config(bf16={"enabled": True}, **sections), "DSP001")

    assert finding.fix == fix
