"""Patterns of packages and repositories that no rule had seen (sets F and T): what was noise or false
there, and beside it what must still be found. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from reported import rows, shown

from trainwright.check.finding import Finding
from trainwright.cli.check import command


@pytest.fixture
def run(run: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    return lambda name, text, *codes: shown(run(name, text, *codes))


SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --output={log}\nsrun hostname\n"


def test_one_cause_in_several_files_of_a_directory_is_one_finding(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.sbatch").write_text(SBATCH.format(log=f"logs/{name}-%j.out"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/d.sbatch").write_text(SBATCH.format(log="out/%j.out"))
    first, second = rows(tmp_path, "--select", "SHL001")
    others = [{"file": str(tmp_path / f"{name}.sbatch"), "line": 3, "column": 18} for name in "bc"]
    assert first["also"] == others
    assert "also" not in first["message"]
    text = CliRunner().invoke(command, [str(tmp_path), "--select", "SHL001", "--no-cache"])
    assert "(also b.sbatch:3, c.sbatch:3)" in text.stdout
    [counted] = rows(tmp_path, "--select", "SHL001", "--statistics")
    assert counted["count"] == 4  # every place
    assert second["file"].endswith("d.sbatch")
    annotated = CliRunner().invoke(command, [str(tmp_path), "--format", "github", "--select", "SHL001", "--no-cache"])
    assert annotated.stdout.count("::notice") == 4  # beside every line


def test_a_baseline_knows_every_file_of_a_cause(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.sbatch").write_text(SBATCH.format(log="logs/%j.out"))
    baseline = str(tmp_path / "known.json")
    CliRunner().invoke(command, [str(tmp_path), "--write-baseline", baseline])
    (tmp_path / "a.sbatch").write_text(SBATCH.format(log="%j.out"))
    assert rows(tmp_path, "--select", "SHL001", "--baseline", baseline) == []
    (tmp_path / "c.sbatch").write_text(SBATCH.format(log="logs/%j.out"))
    [new] = rows(tmp_path, "--select", "SHL001", "--baseline", baseline)
    assert new["file"].endswith("c.sbatch")


@pytest.mark.parametrize("folder", ["tests", "test", "__tests__", ".buildkite", "pkg/tests/deep"])
def test_input_of_tests_and_build_services_is_not_searched(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    job = tmp_path / folder / "a.sbatch"
    job.write_text(SBATCH.format(log="logs/%j.out"))
    assert rows(tmp_path, "--select", "SHL001") == []
    assert len(rows(job, "--select", "SHL001")) == 1  # named
    assert len(rows(tmp_path / folder, "--select", "SHL001")) == 1  # named, as a directory


def test_sbatch_takes_tasks_per_node(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --{}=4\nsrun hostname\n"
    assert run("a.sbatch", text.format("tasks-per-node"), "JOB013") == []
    assert run("b.sbatch", text.format("ntask-per-node"), "JOB013") == ["error JOB013 2"]


def test_a_log_directory_of_a_template_is_not_known(run) -> None:  # type: ignore[no-untyped-def]
    for name in ("@LOG", "<logs>", "%LOGS%", "{logs}", "[LOGS]", "__LOGS__"):
        assert run("a.sh", SBATCH.format(log=f"{name}/x.log"), "SHL001") == []


def test_one_cause_in_several_directories_is_one_finding(tmp_path: Path) -> None:
    for name in ("a/one.sbatch", "b/two.sbatch"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(SBATCH.format(log="logs/%j.out"))
    [finding] = rows(tmp_path, "--select", "SHL001")
    assert [Path(place["file"]).name for place in finding["also"]] == ["two.sbatch"]


@pytest.mark.parametrize("name", ["testData/a.sbatch", "broken_job.sbatch", "insecure/a.sbatch", "testJob.sbatch"])
def test_files_that_are_wrong_on_purpose_are_not_searched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(SBATCH.format(log="logs/%j.out"))
    assert rows(tmp_path, "--select", "SHL001") == []
    assert len(rows(tmp_path / name, "--select", "SHL001")) == 1


def test_shell_variables_of_other_names_are_no_misspellings(run) -> None:  # type: ignore[no-untyped-def]
    for one, other in (("pr_options", "vp_options"), ("NEXUS_VERSION", "NEXUS3_VERSION")):
        assert run("a.sh", f"#!/bin/bash\n{one}=1\ntrain ${one} ${other}\n", "SHL001") == []
    assert run("a.sh", "#!/bin/bash\nbase_name=1\necho $basename\n", "SHL001") == []  # a message on the screen
    assert run("a.sh", "#!/bin/bash\nbase_name=1\ntrain $basename\n", "SHL001") == ["info SHL001 3"]


def test_values_of_the_environment_are_meant(run) -> None:  # type: ignore[no-untyped-def]
    head = "#!/bin/bash\n#SBATCH -N 2\n"
    assert run("a.sh", f"{head}if [[ $BATCH -eq 0 ]]; then srun hostname; fi\n", "SHL001") == []
    several = "if [ $TP -gt 1 ]; then srun a --pp $PP --cp $CP --lr $LR; fi\n"
    assert run("a.sh", head + several, "SHL001") == []
    assert run("a.sh", head + "if [ $TP -gt 1 ]; then srun hostname; fi\n", "SHL001") == ["info SHL001 3"]


def test_unquoted_requirements_of_a_file_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    assert run("Dockerfile", "FROM torch:1\nRUN pip install a>=1\nRUN pip install b>=2 c>=3\n", "SHL001") == [
        "warning SHL001 2"
    ]


MEGATRON = """#!/bin/bash
NNODES=1
torchrun --nproc_per_node 8 --nnodes $NNODES --master_addr localhost --master_port 6000 pretrain_gpt.py \\
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 \\
  --micro-batch-size 1 --global-batch-size 1536 --tensor-model-parallel-size 8 --pipeline-model-parallel-size {pp}
"""


def test_a_script_for_more_nodes_than_are_filled_in_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.sh", MEGATRON.format(pp=16), "JOB002") == ["info JOB002 5"]
    assert run("a.sh", MEGATRON.format(pp=3).replace("--nnodes $NNODES", "--nnodes 4"), "JOB002")[0].startswith("error")


def test_variables_without_effect_are_not_reported(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --gpus-per-node=8\n{}srun torchrun --nproc_per_node=8 a.py\n"
    assert run("a.sbatch", job.format("export NCCL_P2P_DISABLE=1\n"), "ENV001") == ["info ENV001 3"]
    alone = "export CUDA_VISIBLE_DEVICES=$gpu\nexport NCCL_P2P_DISABLE=1\n"
    assert run("a.sbatch", job.format(alone), "ENV001") == []
    debug = "if [ $DEBUG = 1 ]; then\nexport NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL\nfi\n"
    assert run("a.sbatch", job.format(debug), "ENV002") == []
    always = "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL\n"
    assert run("a.sbatch", job.format(always), "ENV002") == ["warning ENV002 3"]


def test_programs_of_awk_and_arguments_of_builds_are_not_shell(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.sh", "#!/bin/bash\nadded==0\n", "SHL001") == []
    assert run("a.sh", "#!/bin/bash\ntorch==2.1\n", "SHL001") == ["warning SHL001 2"]
    image = "FROM a:1\nARG SPARK_VERSION\nARG SPARKR_VERSION=3\nRUN get $SPARK_VERSION $SPARKR_VERSION\n"
    assert run("Dockerfile", image, "SHL001") == []
    assert run("a.sh", "#!/bin/bash\nDOCKERFILE=a\ndie no $DOCKERFFILE\n", "SHL001") == []


def test_a_script_beside_it_may_make_the_log_directory(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    job = SBATCH.format(log="logs/%j.out")
    assert run("a.sbatch", job, "SHL001") == ["info SHL001 3"]
    (tmp_path / "submit.sh").write_text("#!/bin/bash\nmkdir -p logs\nsbatch a.sbatch\n")
    assert run("a.sbatch", job, "SHL001") == []


def test_a_variable_of_the_file_beside_it_is_set(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nGPUS_PER_NODE=${GPU_PER_NODE}\ntorchrun --nproc_per_node=$GPUS_PER_NODE a.py\n"
    assert run("a.sh", text, "SHL001") == ["info SHL001 2"]  # taken from the other: the caller may set it
    (tmp_path / "env.conf").write_text("export GPU_PER_NODE=8\n")
    assert run("a.sh", text, "SHL001") == []


def test_two_nodes_of_one_machine_share_localhost(run) -> None:  # type: ignore[no-untyped-def]
    one = "CUDA_VISIBLE_DEVICES={g} torchrun --nnodes=2 --node-rank={r} --nproc-per-node=2 --master-addr=localhost a.py"
    both = "#!/bin/bash\n" + one.format(g="0,1", r=0) + " &\n" + one.format(g="2,3", r=1) + "\n"
    assert run("a.sh", both, "JOB009") == []
    assert run("a.sh", "#!/bin/bash\n" + one.format(g="0,1", r=0) + "\n", "JOB009") == ["info JOB009 2"]


def test_extends_of_other_programs_is_no_spec(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: _base.yaml\n")
    (tmp_path / "_base.yaml").write_text("script: a.py\nargs: {x: 1}\n")
    assert rows(tmp_path) == []


def test_placeholders_in_braces_are_placeholders(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "Region: us-east-2\nImage: {Os: ubuntu2204, CustomAmi: '{GROMACS_AMI}'}\nHeadNode:\n  InstanceType: c5.xlarge\n"
        "  Networking: {SubnetId: '{SUBNET_ID}'}\nScheduling:\n  Scheduler: slurm\n  SlurmQueues:\n  - Name: a\n"
        "    Networking: {SubnetIds: ['{SUBNET_ID}']}\n"
        "    ComputeResources: [{Name: b, InstanceType: c5.xlarge, MaxCount: 1}]\n"
    )
    assert not any(one.startswith("error") for one in run("a.yaml", text, "CFG"))


def test_a_batch_script_may_set_what_the_other_defaults(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "train.sh").write_text("NODE=${NODE:-1}\ntorchrun --nnodes=$NODE --nproc_per_node=8 a.py\n")
    job = "#!/bin/bash\n#SBATCH --nodes=2\n{}srun bash train.sh\n"
    assert run("a.sbatch", job.format("export NODE=$SLURM_NNODES\n"), "JOB016") == []
    assert run("a.sbatch", job.format(""), "JOB016") == ["info JOB016 3"]


def test_a_habit_of_one_file_is_one_finding(tmp_path: Path) -> None:
    script = "#!/bin/bash\ntorchrun --nproc_per_nodes=8 a.py\ntorchrun --rdzv_backends=c10d a.py\n"
    (tmp_path / "a.sh").write_text(script)
    [finding] = rows(tmp_path, "--select", "JOB013")
    assert [place["line"] for place in finding["also"]] == [3]
    whole = CliRunner().invoke(command, [str(tmp_path), "--format", "full", "--select", "JOB013", "--no-cache"])
    assert whole.stdout.count("error JOB013") == 2


def test_a_directory_that_was_made_counts_with_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job = tmp_path / "jobs" / "a.sbatch"
    job.parent.mkdir()
    job.write_text(SBATCH.format(log="logs/%j.out"))
    words = [str(job.parent), "--cache", "--format", "json", "--select", "SHL001"]
    assert len(json.loads(CliRunner().invoke(command, words).stdout)) == 1
    (job.parent / "logs").mkdir()
    assert json.loads(CliRunner().invoke(command, words).stdout) == []


def test_ntasks_wins_over_ntasks_per_node(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:1\n"
    assert run("a.sbatch", text + "srun python a.py\n", "JOB001") == []


def test_a_command_that_only_predicts_trains_on_nothing(run) -> None:  # type: ignore[no-untyped-def]
    text = "torchrun --nproc_per_node 2 run_glue.py --train_file a.json --validation_file a.json {} --max_steps 9\n"
    assert run("a.sh", text.format("--do_predict"), "JOB012") == []
    assert run("a.sh", text.format("--do_train --do_eval"), "JOB012") == ["info JOB012 1"]
