"""DSP001 on values. Of each kind at least one sample was given to deepspeed.initialize of 0.19.8 beside torch 2.13."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def config(**sections: Any) -> str:
    return json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, **sections}, indent=1)


def optimizer(kind: str, **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": params}}


def offload(device: Any, name: str = "offload_optimizer") -> dict[str, Any]:
    return {"zero_optimization": {"stage": 3, name: {"device": device}}}


MAXIMUM = "remove warmup_max_lr (the maximum is lr of the optimizer)"


def schedule(kind: str, **params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": kind, "params": params}}


@pytest.mark.parametrize(
    ("sections", "level", "fix"),
    [
        (offload("gpu"), "error", "write none"),
        (offload("cuda", "offload_param"), "error", "write none"),
        (offload("CPU"), "error", "write cpu"),
        (offload("nvm"), "error", "write nvme"),
        (offload("disk"), "error", "write none, cpu or nvme"),
        (optimizer("AdamW", learning_rate=1e-4), "warning", "write lr"),
        (optimizer("Lamb", lr=1, epsilon=1e-8), "warning", "write eps"),
        (optimizer("Adam", lr=1, weight_decy=0), "warning", "write weight_decay"),
        (optimizer("Adam", max_grad_norm=1.0), "warning", "move it to the top of the file, as gradient_clipping"),
        (optimizer("AdamW", gradient_clipping=1.0), "warning", "move it to the top of the file"),
        (optimizer("Adam", gradient_accumulation_steps=2), "warning", "move it to the top of the file"),
        (offload("nvme"), "error", "add nvme_path, a directory on a local disk of every node"),
        (offload("nvme", "offload_param"), "error", "add nvme_path, a directory on a local disk of every node"),
        (
            schedule("WarmupDecayLR", warmup_num_steps=9),
            "warning",
            "add total_num_steps, the steps of the run",
        ),
        (
            schedule("WarmupCosineLR", total_num_steps=9, warmup_max_lr=1),
            "warning",
            "remove warmup_max_lr (the maximum is lr of the optimizer)",
        ),
        (schedule("WarmupLR", warmup_steps=9), "warning", "write warmup_num_steps for warmup_steps"),
        (optimizer("AdmaW", lr=1), "warning", "did you mean AdamW?"),
        (optimizer("sgd", lr=1), "warning", "did you mean SGD?"),
        (
            {"scheduler": {"type": "WarmupCosine", "params": {"total_num_steps": 9}}},
            "warning",
            "did you mean WarmupCosineLR?",
        ),
        ({"scheduler": {"type": "warmuplr", "params": {}}}, "warning", "did you mean WarmupLR?"),
        (
            schedule("CosineAnnealing", T_max=9),
            "warning",
            "did you mean CosineAnnealingLR? Then give it the parameters of torch's CosineAnnealingLR",
        ),
    ],
)
def test_a_value_that_deepspeed_refuses_is_reported(run: Run, sections: dict[str, Any], level: str, fix: str) -> None:
    (finding,) = run("ds.json", config(**sections), "DSP001")
    assert (finding.level, finding.fix) == (level, fix)
    assert finding.why


@pytest.mark.parametrize(
    ("stage", "name", "count"),
    [
        (1, "offload_optimizer", 1),
        (2, "offload_optimizer", 1),
        (0, "offload_optimizer", 0),
        ("auto", "offload_optimizer", 0),
    ],
)
def test_states_that_stay_in_the_hosts_memory(run: Run, stage: object, name: str, count: int) -> None:
    """DeepSpeed 0.19.8 trained, saved and loaded with each of these, with a path and without."""
    for more in ({}, {"nvme_path": "/local"}):
        text = config(zero_optimization={"stage": stage, name: {"device": "nvme", **more}})
        findings = run("ds.json", text, "DSP001")
        assert [(one.level, one.fix) for one in findings] == [
            ("info", "write cpu, or use stage 3 with a path on a local disk")
        ] * count


@pytest.mark.parametrize(
    "sections",
    [
        offload("cpu"),
        offload("none"),
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local"}}},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "${NVME}"}}},
        offload("auto"),
        offload("${OFFLOAD}"),
        {"zero_optimization": {"stage": 2, "offload_optimizer": None}},
        optimizer("AdamW", lr="auto", betas="auto", eps="auto", weight_decay="auto", torch_adam=True),
        optimizer("adamW", lr=1e-4, adam_w_mode=True, bias_correction=False),
        optimizer("OneBitAdam", lr=1e-4, freeze_step=400, cuda_aware=False, comm_backend_name="nccl"),
        optimizer("ZeroOneAdam", lr=1, var_freeze_step=1000, local_step_scaler=8, of_somebody=1),
        optimizer("NAdam", lr=1, momentum_decay=0.004),
        optimizer("Muon", lr=1, momentum=0.9, muon_lr=1),
        optimizer("Adam8bit", learning_rate=1),  # of the script that makes it
        optimizer("CAdamW", lr=1),
        {"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 1}}},
        {"scheduler": {"type": "StepLR", "params": {"step_size": 3}}},
        {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1}}},
        {"scheduler": {"type": "of_the_script", "params": {}}},
        {"scheduler": {"type": "auto", "params": {}}},
    ],
)
def test_a_value_that_deepspeed_or_a_script_takes_is_not(run: Run, sections: dict[str, Any]) -> None:
    assert run("ds.json", config(**sections), "DSP001") == []


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: {device}
"""


@pytest.mark.parametrize(
    ("device", "kind", "count"),
    [("gpu", "DEEPSPEED", 1), ("cpu", "DEEPSPEED", 0), ("null", "DEEPSPEED", 0), ("gpu", "MULTI_GPU", 0)],
)
def test_the_device_of_an_accelerate_configuration(run: Run, device: str, kind: str, count: int) -> None:
    assert len(run("a.yaml", ACCELERATE.format(device=device, kind=kind), "DSP001")) == count


def test_nvme_of_an_accelerate_configuration_needs_a_path(run: Run) -> None:
    text = ACCELERATE.format(device="nvme", kind="DEEPSPEED")
    (finding,) = run("a.yaml", text, "DSP001")
    assert (finding.level, finding.span.line) == ("warning", 5)
    assert run("b.yaml", text + "  offload_optimizer_nvme_path: /local\n", "DSP001") == []
    (path := Path(finding.file).parent / "run.sh").write_text("accelerate launch --config_file a.yaml "
        "--offload_optimizer_nvme_path /local train.py\n")  # fmt: skip
    assert run("a.yaml", text, "DSP001") == []
    path.unlink()
    (finding,) = run("a.yaml", text.replace("zero_stage: 3", "zero_stage: 2"), "DSP001")
    assert finding.level == "info"  # no swap files are made


SAVES = "engine, *_ = deepspeed.initialize(model=model, config='ds.json')\n{}\n"
SAVE = "engine.save_16bit_model(out)"


@pytest.mark.parametrize(
    ("gather", "stage", "program", "count"),
    [
        (False, 3, SAVES.format(SAVE), 1),
        (None, 3, SAVES.format(SAVE), 1),
        (True, 3, SAVES.format(SAVE), 0),
        ("auto", 3, SAVES.format(SAVE), 0),
        (False, 2, SAVES.format(SAVE), 0),
        (False, 3, SAVES.format(f"if not {SAVE}:\n    engine.save_checkpoint(out)"), 0),  # as the Trainer does
        (False, 3, SAVES.format("engine.save_checkpoint(out)"), 0),
        (False, 3, SAVES.format(SAVE).replace("ds.json", "other.json"), 0),
        (False, 3, "config['zero_optimization']['stage3_gather_16bit_weights_on_model_save'] = True\n"
         + SAVES.format(SAVE), 0),
        (False, 3, "keep = DeepSpeedPlugin('ds.json')  # deepspeed_plugin\nstate = accelerator.get_state_dict(m)", 1),
    ],
)  # fmt: skip
def test_weights_that_zero_3_does_not_gather(
    run: Run, tmp_path: Path, gather: Any, stage: int, program: str, count: int
) -> None:
    zero: dict[str, Any] = {"stage": stage}
    if gather is not None:
        zero["stage3_gather_16bit_weights_on_model_save"] = gather
    (tmp_path / "train.py").write_text(program)
    assert len(run("ds.json", config(zero_optimization=zero), "DSP001")) == count


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (SAVES.format(SAVE), 1),
        (SAVES.format(SAVE).replace("'ds.json'", "args.config or 'conf/ds.json'"), 1),
        (SAVES.format("if path != 'ds_zero3.json':\n    " + SAVE), 0),
        (SAVES.format("if path.endswith('zero3.json'):\n    gather()\n" + SAVE), 0),
        (SAVES.format("if engine.zero_optimization_stage() == 3:\n    gather()\nelse:\n    " + SAVE), 0),
        ("two = 'ds_zero2.json'\n" + SAVES.format("if big:\n    gather()\nelse:\n    " + SAVE), 0),
        (SAVES.format("if zero3:\n    gather()\nelse:\n    " + SAVE), 0),
    ],
)
def test_the_name_of_a_configuration_is_no_knowledge_of_its_stage(
    run: Run, tmp_path: Path, program: str, count: int
) -> None:
    (tmp_path / "train.py").write_text(program.replace("ds.json", "ds_zero3.json"))
    assert len(run("ds_zero3.json", config(), "DSP001")) == count


def test_a_launcher_names_the_file_and_the_program_that_saves(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "e, *_ = deepspeed.initialize(args=args, model=model)\ne.save_16bit_model(out)\n"
    )
    text = config(zero_optimization={"stage": 3})
    assert run("ds.json", text, "DSP001") == []
    (tmp_path / "run.sh").write_text("deepspeed train.py --deepspeed_config ds.json\n")
    assert len(run("ds.json", text, "DSP001")) == 1


def test_a_step_count_that_the_script_fills_in_is_a_note(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('config["scheduler"]["params"]["total_num_steps"] = steps\n')
    (finding,) = run("ds.json", config(**schedule("WarmupDecayLR", warmup_num_steps=9)), "DSP001")
    assert finding.level == "info"


AUTOMATIC = '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "bf16": {"enabled": true}}'
INITIALIZED = "import deepspeed\nengine, *_ = deepspeed.initialize(model=net, config='conf.json')\n"


@pytest.mark.parametrize(
    ("program", "text", "count"),
    [
        (INITIALIZED, AUTOMATIC, 1),
        (INITIALIZED, AUTOMATIC.replace(": 2", ': "auto", "train_batch_size": "auto"'), 1),
        (
            INITIALIZED + "sizes = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()\n",
            AUTOMATIC,
            1,
        ),
        (INITIALIZED + "engine.set_train_micro_batch_size(4)\n", AUTOMATIC, 0),
        (INITIALIZED, AUTOMATIC.replace('"auto"', "4").replace("true", '"auto"'), 0),
        (INITIALIZED.replace("conf.json", "other_conf.json"), AUTOMATIC, 0),
        (INITIALIZED.replace("engine", "# engine"), AUTOMATIC, 0),
        ("from accelerate import Accelerator\n" + INITIALIZED, AUTOMATIC, 0),
        ("import json\nsettings = json.load(open('conf.json'))\n" + INITIALIZED, AUTOMATIC, 0),
        ("Trainer(args='conf.json')\n", AUTOMATIC, 0),
    ],
)
def test_auto_that_nothing_fills_in(tmp_path: Path, run: Run, program: str, text: str, count: int) -> None:
    (tmp_path / "main.py").write_text(program)
    findings = [one for one in run("conf.json", text, "DSP001") if one.level != "info"]
    assert [one.level for one in findings] == ["error"] * count


def test_auto_of_a_file_that_two_programs_use(tmp_path: Path, run: Run) -> None:
    (tmp_path / "main.py").write_text(INITIALIZED)
    (tmp_path / "sft.py").write_text("Trainer(args=TrainingArguments(deepspeed='conf.json'))\n")
    assert run("conf.json", AUTOMATIC, "DSP001") == []


@pytest.mark.parametrize(
    ("kind", "params", "fix"),
    [
        ("WarmupDecayLR", {"warmup_num_steps": 1, "total_steps": 9}, "write total_num_steps for total_steps"),
        ("WarmupLR", {"num_warmup_steps": 9}, "write warmup_num_steps for num_warmup_steps"),
        ("WarmupDecayLR", {"num_training_steps": 5}, "write total_num_steps for num_training_steps"),
        ("WarmupCosineLR", {"max_steps": 5}, "write total_num_steps for max_steps"),
        ("WarmupDecayLR", {"num_training_steps": 5, "total_num_steps": 5}, "remove num_training_steps"),
        ("WarmupLR", {"num_training_steps": 5}, "remove num_training_steps"),
        (
            "WarmupDecayLR",
            {"num_training_steps": 5, "total_steps": 5},
            "write total_num_steps for num_training_steps and remove total_steps",
        ),
        (
            "WarmupLR",
            {"num_warmup_steps": 9, "warmup_steps": 9},
            "write warmup_num_steps for num_warmup_steps and remove warmup_steps",
        ),
        ("WarmupLR", {"num_warmup_steps": 9, "warmup_num_steps": 9}, "remove num_warmup_steps"),
    ],
)
def test_each_parameter_of_a_schedule_is_written_once(run: Run, kind: str, params: dict[str, Any], fix: str) -> None:
    (finding,) = run("ds.json", config(**schedule(kind, **params)), "DSP001")

    assert finding.fix == fix


def test_every_batch_size_below_one_is_reported(run: Run) -> None:
    sizes = {"train_batch_size": 0, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 0}

    findings = run("ds.json", config(**sizes), "DSP001")

    assert [one.fix for one in findings] == ["remove it: DeepSpeed computes it from the others"] * 2


def test_one_batch_size_is_left(run: Run) -> None:
    sizes = {"train_batch_size": 0, "train_micro_batch_size_per_gpu": -1}

    findings = run("ds.json", json.dumps({**sizes, "fp16": {"enabled": True}}), "DSP001")

    assert sorted(one.fix.partition(":")[0] for one in findings) == ["remove it", "write 1 or more"]
