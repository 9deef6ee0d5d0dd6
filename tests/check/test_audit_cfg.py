"""What DeepSpeed, accelerate, LLaMA-Factory and Python take, and files of other programs that look like theirs. Each
case was given to the program itself (DeepSpeed 0.14.5 to 0.19.8, accelerate 0.27.2 to 1.15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reported import shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.check.readers.recognise import read_file
from trainwright.spec.mistakes import SpecError
from trainwright.spec.source import SourceError

Run = Callable[..., list[Finding]]

ZERO = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}


def ds(**sections: Any) -> str:
    return json.dumps({**ZERO, **sections}, indent=1)


OTHER_PROGRAMS = {
    "hparams.json": '{"train_batch_size": 30, "gradient_accumulation_steps": 4, "optimizer": "adamw", "fp16": true}',
    "own.yaml": "train_batch_size: 30\ngradient_accumulation_steps: 4\noptimizer: {name: adamw, lr: 1}\nseed: 1\n",
    "mm.yaml": "train_batch_size: 30\ngradient_accumulation_steps: 4\noptimizer: {type: AdamW, lr: 1}\nfp16: true\n",
    "model.json": '{"train_batch_size": 32, "gradient_accumulation_steps": 3, "optimizer": {"name": "a"}, "model": {}}',
    "tuned.json": '{"train_batch_size": 128, "train_micro_batch_size_per_gpu": 5, "exp": "z", "result_dir": "x", '
    '"optimizer": {"type": "Adam", "params": {}}}',
    "neox.yml": "zero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 4\nfp16: {fp16: true, enabled: true}\n",
    "large.yml": '{"zero_optimization": {"stage": 1}, "train_batch_size": 33, "train_micro_batch_size_per_gpu": 4, '
    '"num_layers": 4, "hidden_size": 8, "pipe_parallel_size": 1, "seq_length": 8}',
}


@pytest.mark.parametrize("name", OTHER_PROGRAMS)
def test_a_file_of_another_program_is_not_deepspeeds(name: str) -> None:
    file = read_file(name, OTHER_PROGRAMS[name], named=False)

    assert file is None or file.format != "deepspeed"


@pytest.mark.parametrize("key", ["optimizer_", "_optimizer", "xoptimizer", "optimizer1", "//optimizer", "-optimizer"])
def test_a_key_that_was_renamed_to_switch_it_off_is_no_typing_mistake(run: Run, key: str) -> None:
    assert run("ds.json", ds(**{key: {"type": "AdamW"}}), "DSP001") == []
    assert shown(run("ds.json", ds(optimzer={"type": "AdamW"}), "DSP001")) == ["warning DSP001 6"]


def test_batches_are_compared_as_far_as_the_file_states_them(run: Run) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train_batch_size": 30, "gradient_accumulation_steps": 4}, "a multiple of micro-batch × accumulation steps"),
        (
            {"train_batch_size": 30, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4},
            "a multiple of accumulation steps (4)",
        ),
        ({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}, "a multiple of micro-batch (4)"),
        ({"train_batch_size": "auto", "gradient_accumulation_steps": 4}, ""),
        ({"train_batch_size": 8, "gradient_accumulation_steps": 4}, ""),
    ]
    for stated, words in cases:
        findings = run("ds.json", ds(**stated), "DSP001")
        assert [words in finding.message for finding in findings] == [True] * bool(words), stated
    elastic = {"enabled": True, "max_train_batch_size": 2000, "ignore_non_elastic_batch_info": True}
    findings = run("ds.json", ds(train_batch_size=30, gradient_accumulation_steps=4, elasticity=elastic), "DSP001")
    assert [finding.level for finding in findings] == ["info"], "DeepSpeed computes the batches itself"


@pytest.mark.parametrize("name", ["bf16", "bfloat16"])
def test_two_precisions_by_either_name(run: Run, name: str) -> None:
    text = ds(fp16={"enabled": True}, **{name: {"enabled": True}})
    assert [finding.level for finding in run("ds.json", text, "DSP001")] == ["error"]


@pytest.mark.parametrize("value", [True, False])
def test_a_key_beside_the_one_that_replaced_it_is_refused(run: Run, value: bool) -> None:
    both = {"stage": 2, "cpu_offload": value, "offload_optimizer": {"device": "cpu"}}
    assert shown(run("ds.json", ds(zero_optimization=both), "DSP001")) == ["error DSP001 5"]
    assert run("ds.json", ds(zero_optimization={"stage": 2, "cpu_offload": value}), "DSP001") == []


def schedule(kind: str, **params: Any) -> str:
    return ds(scheduler={"type": kind, "params": params})


def test_schedules_that_deepspeed_refuses_or_never_ends_warming_up(run: Run) -> None:
    cases = [
        (schedule("WarmupDecayLR", warmup_num_steps=1000, total_num_steps=100), ["warning DSP001 9"]),
        (schedule("WarmupCosineLR", warmup_num_steps=1000, total_num_steps=100), ["warning DSP001 9"]),
        (schedule("WarmupLR", warmup_num_steps=10, total_num_steps="auto"), ["warning DSP001 10"]),
        (schedule("WarmupLR", warmup_num_steps=1000), []),
        (schedule("WarmupDecayLR", warmup_num_steps="auto", total_num_steps=100), []),
        (schedule("OneCycle", warmup_num_steps=1000, total_num_steps=100), []),
    ]
    for text, expected in cases:
        assert shown(run("ds.json", text, "DSP001")) == expected, text


def test_the_message_names_the_release_that_began_to_stop(run: Run) -> None:
    (zero,) = run("ds.json", ds(zero_optimization={"stage": 2, "offload_params": 1}), "DSP001")
    (brain,) = run("ds.json", ds(bf16={"enabled": True, "auto_cast": True}), "DSP001")

    assert (zero.level, "0.7.0 and later" in zero.message) == ("error", True)
    assert (brain.level, brain.fix) == ("warning", "remove it: it is a key of fp16")


HJSON = """{
  'train_micro_batch_size_per_gpu': 4  // no comma
  "zero_optimization": {stage: 2, "overlap_comm": true,},
  "path": /fsx/data
}
"""


def found(folder: Path, name: str, text: str, *codes: str) -> list[str]:
    (folder / name).write_text(text, encoding="utf-8")
    return shown(check([str(folder)], Selection(select=codes)).findings)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ds_config.json", HJSON, ["info DSP001 2"]),
        ("ds_config.json", '{"zero_optimization": {"stage": 2}, "gradient_clipping": NaN}', []),  # json.load takes it
        ("ds_config.json", ds(fp16={"enabled": True}).replace("true", "True"), ["info DSP001 7", "warning DSP001 7"]),
        (
            "ds_config.json",
            '{"zero_optimization": {"stage": 2}, "zero_optimization": {"stage": 3}}',
            ["warning TW001 1"],
        ),
        ("ds_config.json", '{"zero_optimization": {"stage": 2}, "steps_per_print": 1, "steps_per_print": 1}', []),
        ("ds_config.json", '{"zero_optimization": {"stage": 2,\n"a": 500_000}}', ["warning TW001 2"]),
        ("ds_config.json", '{"zero_optimization": {"stage": 2}, "train_batch_size": $SIZE}', []),  # filled by a script
        ("ds_gpt_TEMPLATE.json", '{"zero_optimization": {"stage": STAGE},\n"train_batch_size": SIZE}', []),
        ("ds_results.json", '{"num_nodes": 1}\n{"num_nodes": 2}\n', []),  # lines of another program
    ],
)
def test_what_deepspeed_reads_is_readable(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    assert found(tmp_path, name, text, "DSP", "TW") == expected


MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nvidia.com/gpu: %s\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", MANIFEST % "{gpus}-x: 1", []),  # for str.format
        ("a.yaml", MANIFEST % "@GPUS@", []),
        ("a.yaml", MANIFEST % "%(gpus)d", []),
        ("pod-template.yaml", MANIFEST % "1: 2", []),
        ("template.yaml", "Resources: {A: {Type: AWS::FSx::FileSystem}, b: c: d}\n", ["warning TW001 1"]),
        ("a.yaml", MANIFEST % "1: 2", ["warning TW001 5"]),
        ("a.yaml", MANIFEST % "1" + "metadata: {name: a}\n", []),  # twice the same
        ("a.yaml", MANIFEST % "1" + "metadata: {name: b}\n", ["warning TW001 6"]),
        ("a.yaml", MANIFEST % ("[" * 90 + "]" * 90), ["info TW001 5"]),  # a limit of ours
    ],
)
def test_a_file_that_another_program_completes_is_not_broken(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    assert found(tmp_path, name, text, "TW") == expected


SCRIPT = "import torch.distributed as dist\ndist.init_process_group()\nloss.backward()\n"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ('print "loss"', "info"),  # Python 2
        ("raise ValueError, 1", "info"),
        ("x = x.cuda(async=True)", "info"),  # until 3.6
        ('x = f"{d["a"]}"', "info"),  # since 3.12
        ("def f[T](x: T): pass", "info"),
        ("!pip install torch", "info"),  # notebooks
        ("%matplotlib inline", "info"),
        ("from {{cookiecutter.name}} import x", "info"),
        ("<<<<<<< HEAD", "warning"),
        ("x = (1,", "warning"),
        ("```python", "warning"),
        ("  x = 1", "warning"),
    ],
)
def test_python_that_another_version_or_program_reads_is_a_note(tmp_path: Path, line: str, level: str) -> None:
    assert found(tmp_path, "train.py", f"{SCRIPT}{line}\n", "TW") == [f"{level} TW001 4"]


def accelerate(kind: str, more: str) -> str:
    return f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_processes: 8\n{more}"


OFFLOAD = "deepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu\n"
FILE = "deepspeed_config:\n  deepspeed_config_file: {}\n  zero_stage: 2\n"


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("DEEPSPEED", OFFLOAD, ["warning DSP001 6"]),
        ("MULTI_GPU", OFFLOAD, []),  # accelerate does not read the section
        ("DEEPSPEED", FILE.format("ds.json"), ["error CFG006 6"]),
        ("MULTI_GPU", FILE.format("ds.json"), []),
        ("DEEPSPEED", FILE.format("null"), []),  # accelerate's own words for none
        ("DEEPSPEED", FILE.format("none"), []),
        ("FSDP", "fsdp_config:\n  fsdp_offload_param: true\n", ["warning CFG006 5"]),
        ("MULTI_GPU", "fsdp_config:\n  fsdp_offload_param: true\n", []),
        ("MULTI_GPU", "mixed_precision: no\n", ["warning DSP001 4"]),
        ("MULTI_GPU", "mixed_precision: 'no'\n", []),
        ("MULTI_GPU", "model: a\ndata: b\nlr: 1\nepochs: 2\n", ["info CFG006 4"]),  # a file of several programs
    ],
)
def test_sections_that_accelerate_reads(run: Run, kind: str, more: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", accelerate(kind, more), "DSP", "CFG006")) == expected


@pytest.mark.parametrize(
    ("kind", "more", "fix"),
    [
        ("DEEPSPEED", "zero_stage: 3\n", "write it in deepspeed_config"),
        (
            "DEEPSPEED",
            "zero_stage: 3\ndeepspeed_config: {deepspeed_config_file: a}\n",
            "write it in the file of deepspeed_config_file",
        ),
        ("MULTI_GPU", "zero_stage: 3\n", "remove it, or write it in deepspeed_config with distributed_type: DEEPSPEED"),
        ("DEEPSPEED", "zero_stage: 3\nenv: 1\n", "write zero_stage in deepspeed_config; remove the others"),
        ("MULTI_GPU", "zero_stage: 3\nenv: 1\n", "remove them"),
        ("MULTI_GPU", "num_machine: 3\nenv: 1\n", "write num_machines for num_machine; remove the others"),
        (
            "DEEPSPEED",
            FILE.format("ds.json") + "mixed_precision: bf16\n",
            "state it in that file only, and mixed_precision too",
        ),
    ],
)
def test_the_fix_leaves_nothing_that_accelerate_refuses(run: Run, kind: str, more: str, fix: str) -> None:
    (finding,) = run("a.yaml", accelerate(kind, more), "CFG006")
    assert finding.fix == fix


def test_other_programs_have_stages_and_forks_have_keys(run: Run) -> None:
    factory = (
        "model_name_or_path: a\nstage: {}\ntemplate: b\nper_device_train_batch_size: 1\ngradient_acumulation_steps: 8\n"
    )
    assert shown(run("a.yaml", factory.format("sft"), "CFG006")) == ["error CFG006 5"]
    assert read_file("b.yaml", factory.format(2), named=False) is None
    fork = factory.format("sft") + "ring_size: 1\nmoe_mode: b\nreward_url: c\n"
    assert {finding.level for finding in run("c.yaml", fork, "CFG006")} == {"info"}


MACHINES = accelerate("MULTI_GPU", "num_machines: {}\nmachine_rank: {}\nmain_process_ip: {}\n")


def test_machines_of_accelerate_are_judged_where_no_launcher_states_them(tmp_path: Path) -> None:
    wrong = MACHINES.format(3, 3, "localhost")
    assert found(tmp_path, "a.yaml", wrong, "JOB015") == ["error JOB015 3", "error JOB015 5", "error JOB015 6"]
    assert found(tmp_path, "a.yaml", MACHINES.format(1, 1, "localhost"), "JOB015") == [], "read of several only"
    launch = "#!/bin/bash\naccelerate launch --config_file a.yaml --main_process_ip $HOST train.py\n"
    assert found(tmp_path, "a.yaml", wrong, "JOB015") != []
    (tmp_path / "run.sh").write_text(launch)
    assert found(tmp_path, "a.yaml", wrong, "JOB015") == ["error JOB015 3"], "the counts are still the file's"
    (tmp_path / "run.sh").write_text(launch.replace("--main", "--num_processes 6 --main"))
    assert found(tmp_path, "a.yaml", wrong, "JOB015") == []
    (tmp_path / "run.sh").write_text(launch.replace("--main_process_ip", "--num_machines"))
    assert found(tmp_path, "a.yaml", wrong, "JOB015") == []


BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
LAUNCH = "srun accelerate launch --config_file a.yaml train.py\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (LAUNCH, ["error JOB016 5"]),
        (f"sed -i 's/1/2/' a.yaml\n{LAUNCH}", []),  # the file is another by then
        (f"cat > a.yaml <<EOF\nx\nEOF\n{LAUNCH}", []),
        (f"python make_config.py --nodes 2 > a.yaml\n{LAUNCH}", []),
        (f"cd src\n{LAUNCH}", []),
        (LAUNCH.replace("a.yaml", "${CONFIG:-a.yaml}"), ["info JOB016 5"]),
    ],
)
def test_a_launcher_is_compared_with_the_file_that_it_reads(tmp_path: Path, body: str, expected: list[str]) -> None:
    (tmp_path / "a.yaml").write_text(accelerate("MULTI_GPU", "num_machines: 1\n"))
    assert found(tmp_path, "job.sbatch", BATCH + body, "JOB016") == expected


DEEPSPEED = """{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
"zero_optimization": {"stage": 2}}
"""


@pytest.mark.parametrize(
    ("before", "rewritten"),
    [
        ("python tools/mk.py -o ds.json", True),
        ("python tools/mk.py -o=ds.json", True),
        ("python tools/mk.py --output-file 'conf/ds.json'", True),
        ("python tools/mk.py --out_path=$PWD/ds.json", True),
        ("python tools/mk.py --save_to ds.json", True),
        ("curl -sLo ds.json https://example.org/x", True),
        ("python - <<E\nimport json\njson.dump({}, open('ds.json', 'w'))\nE", True),
        ("python - <<E\nwith open('ds.json', 'w') as file:\n    pass\nE", True),
        ("python tools/look.py ds.json", False),
        ("python - <<E\nprint(open('ds.json').read())\nE", False),
        # Another run reads it too; its outputs go elsewhere.
        ("deepspeed --num_gpus=8 y.py --deepspeed ds.json --output_dir out", False),
        ("srun --output log.txt python y.py ds.json", False),
    ],
)
def test_a_file_that_the_job_writes_first_is_not_judged(tmp_path: Path, before: str, rewritten: bool) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    launch = "deepspeed --num_gpus=8 x.py --deepspeed ds.json --per_device_train_batch_size 2\n"
    findings = found(tmp_path, "run.sh", f"#!/bin/bash\n{before}\n{launch}", "JOB016")
    assert (findings == []) == rewritten


def test_only_hydra_is_known_to_take_keys_as_arguments(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("trainer: {num_nodes: 4, devices: 8}\nmodel: {a: 1}\n")
    start = BATCH.replace("node=1", "node=8") + "srun python t.py {}\n"
    assert found(tmp_path, "a.sbatch", start.format("--config-path=. --config-name=x"), "JOB016") == ["error JOB016 5"]
    assert found(tmp_path, "a.sbatch", start.format("--config x.yaml"), "JOB016") == ["info JOB016 5"]
    assert found(tmp_path, "a.sbatch", start.format("--config x.yaml --num_nodes 2"), "JOB016") == []


@pytest.mark.parametrize(
    "text",
    [
        "name: app\nplatform: linux/amd64\n",
        "name: jobs\nqueues: [default, mailers]\n",
        "name: jobs\nqueues:\n  - {name: high, concurrency: 5}\n",
        "platform: kubernetes\nimage: x\nreplicas: 2\n",
        "platform: slurm\npartition: gpu\n",
        "extends: ./base.yaml\nname: run\ntags: [a]\n",
        '{"name": "pkg", "platform": "node"}\n',
    ],
)
def test_a_file_with_words_of_a_spec_is_none_unless_it_is_named(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "a.yaml", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "platform: parallelcluster\nqueues:\n  - {name: gpu, count: 4}\n",
        "platfrom: eks\nname: a\nqueues:\n  - {name: gpu, instance: p5.48xlarge, count: 4}\n",
        "extends: base.yaml\njobs:\n  - {name: a, recipe: b, nodes: x}\n",
    ],
)
def test_a_spec_with_mistakes_is_found_in_its_directory(tmp_path: Path, text: str) -> None:
    assert read_spec(text) is not None


def read_spec(text: str) -> object:
    """The error of a spec that nobody named, or None where it is taken for another file."""
    try:
        return read_file("a.yaml", text, named=False)
    except (SpecError, SourceError) as error:
        return error


HEADS = "  hidden_size: 100\n  num_attention_heads: 7\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"trainer: {{num_nodes: 2}}\nmodel:\n{HEADS}", []),  # a model of the program's own, on Lightning
        (f"trainer: {{num_nodes: 2}}\nmodel:\n{HEADS}  micro_batch_size: 1\n", ["JOB004"]),
        (f"training: {{steps: 10}}\noptimizer: {{lr: 1}}\nmodel:\n{HEADS}", []),
    ],
)
def test_programs_on_lightning_have_models_of_their_own(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert [one.split()[1] for one in found(tmp_path, "a.yaml", text)] == expected


def test_a_script_that_sets_the_value_decides_it(tmp_path: Path) -> None:
    text = ds(train_batch_size=30, gradient_accumulation_steps=4)
    assert found(tmp_path, "ds.json", text, "DSP001") == ["error DSP001 6"]
    (tmp_path / "train.py").write_text('config["train_batch_size"] = args.batch * world_size\n')
    assert found(tmp_path, "ds.json", text, "DSP001") == ["info DSP001 6"]
