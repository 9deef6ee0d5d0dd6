"""CFG006: keys of accelerate's and LLaMA-Factory's files, as accelerate itself takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding
from trainwright.check.rules.cfg_trainers import keys

Run = Callable[..., list[Finding]]
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {type}\nnum_machines: 1\nnum_processes: 8\n{more}"
DEEPSPEED = "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
REFUSED = {
    "mixed_precison: bf16\n": "did you mean mixed_precision?",
    "zero_stage: 3\n": "remove it, or write it in deepspeed_config with distributed_type: DEEPSPEED",
    "fsdp_sharding_strategy: 1\n": "remove it, or write it in fsdp_config with distributed_type: FSDP",
    "megatron_lm_tp_size: 2\n": "remove it, or write it in megatron_lm_config with distributed_type: MEGATRON_LM",
    "env: {A: 1}\n": "remove it",
}
TAKEN = ["", "fp16: true\n", "dynamo_backend: 'NO'\n", "mixed_precision: bf16\n", "tpu_env: []\n", "debug: true\n"]


@pytest.mark.parametrize("more", [*REFUSED, *TAKEN])
def test_keys_are_refused_as_accelerate_refuses_them(run: Run, tmp_path: Path, more: str) -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    text = ACCELERATE.format(type="MULTI_GPU", more=more)
    (tmp_path / "judged.yaml").write_text(text)
    findings = run("a.yaml", text, "CFG006")
    assert [f.fix for f in findings] == ([REFUSED[more]] if more in REFUSED else [])
    if more in REFUSED:
        assert shown(findings) == ["error CFG006 5"]
        with pytest.raises(ValueError, match="unknown keys"):
            config_args.ClusterConfig.from_yaml_file(tmp_path / "judged.yaml")
    else:
        config_args.ClusterConfig.from_yaml_file(tmp_path / "judged.yaml")


def test_the_table_has_the_keys_of_the_installed_accelerate() -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    for one in (config_args.ClusterConfig, config_args.SageMakerConfig):
        assert {field.name for field in fields(one)} <= keys()["accelerate"]


@pytest.mark.parametrize("key", ["gradient_accumulation_steps: 4", "zero_stage: 3", "offload_param_device: cpu"])
def test_what_stands_in_deepspeeds_file_stands_nowhere_else(run: Run, key: str) -> None:
    both = ACCELERATE.format(type="DEEPSPEED", more=f"{DEEPSPEED}  {key}\n")
    assert shown(run("a.yaml", both, "CFG006")) == ["error CFG006 7"]
    assert run("a.yaml", both.replace("  deepspeed_config_file: ds.json\n", ""), "CFG006") == []


def test_a_precision_beside_deepspeeds_file_is_refused_unless_the_launcher_has_its_own(run: Run) -> None:
    text = ACCELERATE.format(type="DEEPSPEED", more=DEEPSPEED + "{}")
    assert shown(run("a.yaml", text.format("mixed_precision: bf16\n"), "CFG006")) == ["warning CFG006 7"]
    assert shown(run("a.yaml", text.format("mixed_precision: 'no'\n"), "CFG006")) == ["warning CFG006 7"]
    for other in ("", "mixed_precision: null\n", "mixed_precision: $PRECISION\n"):
        assert run("a.yaml", text.format(other), "CFG006") == []
    zero3 = text.replace("ds.json\n", "ds.json\n  zero3_init_flag: true\n")
    assert run("a.yaml", zero3.format(""), "CFG006") == []


@pytest.mark.parametrize(("fields_", "refused"), [("deepspeed_config_file,zero_stage", True),
                                                 ("deepspeed_config_file,mixed_precision", True),
                                                 ("deepspeed_config_file,zero3_init_flag", False)])  # fmt: skip
def test_accelerate_itself_refuses_what_is_stated_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fields_: str, refused: bool
) -> None:
    """The launcher tells the ranks, by this variable, which keys of DeepSpeed its file has."""
    accelerate = pytest.importorskip("accelerate")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}')
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(tmp_path / "ds.json"))
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", fields_)
    if refused:
        with pytest.raises(ValueError, match="deepspeed_config_file"):
            accelerate.DeepSpeedPlugin()
    else:
        accelerate.DeepSpeedPlugin()


def test_a_misspelt_key_of_a_section_is_ignored(run: Run) -> None:
    text = ACCELERATE.format(type="FSDP", more="fsdp_config:\n  {}: true\n")
    for wrong in ("fsdp_offload_param", "ofload_params", "fsdp_activation_checkpoint"):
        assert shown(run("a.yaml", text.format(wrong), "CFG006")) == ["warning CFG006 6"]
    for right in ("fsdp_offload_params", "offload_params", "some_key_of_a_later_version"):
        assert run("a.yaml", text.format(right), "CFG006") == []


@pytest.mark.parametrize(
    ("type_", "more", "fix"),
    [
        ("FSDP", "deepspeed_config_file: a.json\nseed: 1", "remove them"),
        ("FSDP", "num_gpus: 8\nnproc_per_node: 8\nseed: 1\nlr: 1\na: 1\nmain_process_ips: a", "MANY"),
        (
            "DEEPSPEED",
            "deepspeed_config_file: a.json\nseed: 1\ndeepspeed_config:\n  zero_stage: 2",
            "write deepspeed_config_file in deepspeed_config, and state zero_stage in that file only; "
            "remove the others",
        ),
        (
            "DEEPSPEED",
            "deepspeed_config:\n  deepspeed_config: a.json\n  zero_stage: 2",
            "did you mean deepspeed_config_file? Then state zero_stage in that file only",
        ),
    ],
)
def test_every_key_gets_a_place_that_accelerate_takes(run: Run, type_: str, more: str, fix: str) -> None:
    text = f"compute_environment: LOCAL_MACHINE\ndistributed_type: {type_}\nnum_machines: 1\n"
    text += "same_network: true\nuse_cpu: false\nrdzv_backend: static\nmachine_rank: 0\ndebug: false\n"
    many = "write num_processes for num_gpus, main_process_ip for main_process_ips; remove the others"

    (finding,) = run("a.yaml", f"{text}{more}\n", "CFG006")

    assert finding.fix == (many if fix == "MANY" else fix)


FACTORY = """model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
do_train: true
finetuning_type: lora
template: llama3
per_device_train_batch_size: 1
{more}
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("dataset: identity", []),
        ("datasets: identity", ["error CFG006 7"]),
        ("gradient_acumulation_steps: 8", ["error CFG006 7"]),
        ("sequence_parallel_mode: zigzag-ring", ["info CFG006 7"]),
        ("bf16: true\nfp16: true", ["error CFG006 8"]),
        ("bf16: true\nfp16: false", []),
        ("eval_strategy: steps\nevaluation_strategy: steps\ncutoff_len: 2048\nneat_packing: true", []),
    ],
)
def test_keys_of_llama_factory(run: Run, more: str, expected: list[str]) -> None:
    assert shown(run("sft.yaml", FACTORY.format(more=more), "CFG006")) == expected


def test_other_files_with_a_stage_are_not_llama_factorys(run: Run) -> None:
    other = "model_name_or_path: a\nper_device_train_batch_size: 1\noutput_dir: o\nnum_train_epochs: 1\ndatasets: x\n"
    assert run("a.yaml", other, "CFG006") == []
