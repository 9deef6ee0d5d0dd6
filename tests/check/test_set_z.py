"""False alarms that the judged files of set Z showed: parts of a configuration, defaults of a rank, examples."""

from __future__ import annotations

from pathlib import Path

from reported import shown


def test_a_part_of_a_configuration_is_not_incomplete(run) -> None:  # type: ignore[no-untyped-def]
    part = "HeadNode:\n  LocalStorage: {RootVolume: {Encrypted: true}}\nScheduling:\n  SlurmQueues:\n  - Name: a\n"
    assert shown(run("a.yaml", part, "CFG005")) == ["info CFG005 1"]


JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: a}}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: a
        image: b:1
        command: [bash, -c]
        args:
        - |
          RANK={}
          torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$RANK --master_addr=a-0 train.py
"""


def test_the_default_of_a_rank_is_not_the_rank(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", JOB.format("${JOB_COMPLETION_INDEX:-0}"), "JOB008")) == []
    assert shown(run("b.yaml", JOB.format("0"), "JOB008")) == ["error JOB008 17"]


VOLUME = """apiVersion: v1
kind: PersistentVolume
metadata: {name: a}
spec:
  csi:
    driver: fsx.csi.aws.com
    volumeHandle: fs-04c243dd3dcd7a732
    volumeAttributes:
      dnsname: fs-xxxx.fsx.us-east-2.amazonaws.com"""


def test_a_value_with_the_request_to_replace_it_is_an_example(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", f"{VOLUME}  # Replace with your file system\n", "CFG001")) == ["info CFG001 9"]
    assert shown(run("b.yaml", f"{VOLUME}\n", "CFG001")) == ["error CFG001 9"]


def test_a_token_to_be_written_is_no_token(run) -> None:  # type: ignore[no-untyped-def]
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
    env = "    env: [{{name: HF_TOKEN, value: '{}'}}]\n"
    assert shown(run("a.yaml", pod + env.format("<YOUR_TOKEN>"), "K8S001")) == []
    assert shown(run("b.yaml", pod + env.format("abcdefgh0123456789ab"), "K8S001")) == ["warning K8S001 8"]


def test_a_script_that_ends_with_words_hides_a_failure(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --nodes=1\n{}srun python train.py\necho done\n"
    assert shown(run("a.sbatch", job.format(""), "SLU006")) == ["info SLU006 4"]
    assert shown(run("b.sbatch", job.format("set -euo pipefail\n"), "SLU006")) == []
    assert shown(run("c.sbatch", job.format("") + "exit $status\n", "SLU006")) == []


def test_a_batch_script_does_not_know_its_directory(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --nodes=1\ncd {}\nsrun python train.py\n"
    assert shown(run("a.sbatch", job.format('"$(dirname "$0")"'), "SLU006")) == ["info SLU006 3"]
    assert shown(run("b.sbatch", job.format("$(dirname ${BASH_SOURCE[0]})/.."), "SLU006")) == ["info SLU006 3"]
    assert shown(run("c.sbatch", job.format('"${SLURM_SUBMIT_DIR:-$(dirname "$0")}"'), "SLU006")) == []


def test_a_test_may_wait_for_every_kernel(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --job-name={}\nexport CUDA_LAUNCH_BLOCKING=1\nsrun torchrun train.py\n"
    assert shown(run("a.sbatch", job.format("ddp-test"), "ENV002")) == []
    assert shown(run("b.sbatch", job.format("latest"), "ENV002")) == ["warning ENV002 3"]


def test_a_longer_name_of_an_option_is_recognised(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--config')\np.parse_args()\n"
    (tmp_path / "train.py").write_text(script)
    [finding] = run("a.sh", "#!/bin/bash\ntorchrun train.py --config_path a.yaml\n", "JOB013")
    assert finding.fix == "did you mean --config?"
