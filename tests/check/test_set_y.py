"""False alarms that the judged files of set Y showed: one process for all GPUs, other sites, practice clusters."""

from __future__ import annotations

from reported import shown

POD = """apiVersion: v1
kind: Pod
metadata: {{name: a}}
spec:
  containers:
  - name: a
    image: b:1
    command: [{}]
    resources: {{limits: {{nvidia.com/gpu: 4}}}}
"""
CONF = "ClusterName=a\n{}SlurmctldHost=a\nGresTypes=gpu\nNodeName=a Gres=gpu:4\nPartitionName=p Nodes=ALL\n"


def test_shared_memory_is_for_several_processes(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", POD.format("bash, -c, 'torchrun --nproc_per_node=4 a.py'"), "K8S001")) == [
        "warning K8S001 9"
    ]
    assert shown(run("b.yaml", POD.format("bash, -c, 'train --num_workers=0'"), "K8S001")) == ["info K8S001 9"]


def test_gpus_of_one_process_need_no_processor_each(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=1\n{} train.py\n"
    assert shown(run("a.sbatch", job.format("python"), "JOB006")) == ["info JOB006 4"]
    assert shown(run("b.sbatch", job.format("torchrun --nproc_per_node=gpu"), "JOB006")) == ["warning JOB006 4"]


def test_two_requests_for_gpus_contradict_each_other(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:2\n#SBATCH --gpus-per-node=1\nsrun python train.py\n"
    [finding] = run("a.sbatch", job, "JOB001")
    assert "requested" in finding.message
    assert "used" not in finding.message


def test_settings_of_old_or_practice_clusters_are_notes(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("slurm.conf", CONF.format("SelectType=select/cons_res\n"), "SLU005")) == ["warning SLU005 2"]
    old = "FastSchedule=1\nSelectType=select/cons_res\n"
    assert shown(run("slurm.conf", CONF.format(old), "SLU005")) == ["info SLU005 3"]
    assert shown(run("slurm.conf", CONF.format("TaskPlugin=task/none\n"), "SLU005")) == ["warning SLU005 2"]
    fake = "# fake GPUs in containers\nTaskPlugin=task/none\n"
    assert shown(run("slurm.conf", CONF.format(fake), "SLU005")) == ["info SLU005 3"]


def test_an_interface_that_is_looked_for_is_no_mistake(run) -> None:  # type: ignore[no-untyped-def]
    line = "export NCCL_SOCKET_IFNAME=eth0\n"
    text = "#!/bin/bash\n# on p5.48xlarge, /home/ubuntu\n{}srun torchrun --nproc_per_node=8 train.py\n"
    assert shown(run("a.sh", text.format(line), "ENV003")) == ["error ENV003 3"]
    asked = f"if [ -d /sys/class/net/eth0 ]; then\n  {line}fi\n"
    assert shown(run("b.sh", text.format(asked), "ENV003")) == ["info ENV003 4"]


def test_a_script_for_several_clouds_names_no_instance_type(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n# {}\n# p5.48xlarge on AWS\nexport NCCL_P2P_DISABLE=1\ntorchrun --nproc_per_node=8 a.py\n"
    assert shown(run("a.sh", text.format("a3-highgpu-8g on GCP"), "ENV001")) == ["info ENV001 4"]
    assert shown(run("b.sh", text.format("a run"), "ENV001")) == ["error ENV001 4"]


def test_the_number_of_tasks_wins_over_those_per_node(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n{}srun torchrun --nproc_per_node=4 a.py\n"
    assert shown(run("a.sbatch", job.format("#SBATCH --ntasks=2\n"), "JOB001")) == []
    assert shown(run("b.sbatch", job.format(""), "JOB001")) == ["error JOB001 3"]
