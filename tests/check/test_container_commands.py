"""K8S002: commands of containers that Kubernetes or a shell reads otherwise than they are written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

JOB = """apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: train
        image: {image}
        env: [{env}]
        command: {command}
        args: {args}
"""
LITERAL = '{name: NNODES, value: "2"}'


def job(command: str, args: str = "[]", env: str = "", image: str = "registry/train:1") -> str:
    return JOB.format(command=command, args=args, env=env, image=image)


@pytest.mark.parametrize(
    ("command", "env", "expected"),
    [
        ('[torchrun, "--node_rank=$JOB_COMPLETION_INDEX", train.py]', "", ["error K8S002 15"]),
        ("[torchrun, --node-rank, '${JOB_COMPLETION_INDEX}', train.py]", "", ["error K8S002 15"]),
        ("[python, -m, torch.distributed.run, --nnodes=$NNODES, train.py]", LITERAL, ["error K8S002 15"]),
        ("[accelerate, launch, --num_machines, '${NNODES}', train.py]", LITERAL, ["error K8S002 15"]),
        ("[deepspeed, '--node_rank=$JOB_COMPLETION_INDEX', train.py]", "", ["error K8S002 15"]),
        ("[mpirun, -np, $NNODES, python, train.py]", LITERAL, ["error K8S002 15"]),
        ("[torchrun, '--rdzv_endpoint=$POD_IP:29500', train.py]",
         "{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}", ["error K8S002 15"]),
        ("[python, train.py, '--rank=$JOB_COMPLETION_INDEX']", "", ["info K8S002 15"]),
        ("[torchrun, train.py]", "{name: NODE_RANK, value: $JOB_COMPLETION_INDEX}", ["error K8S002 14"]),
        ("[bash, -c, 'torchrun --node_rank=$NODE_RANK train.py']", "{name: NODE_RANK, value: $JOB_COMPLETION_INDEX}",
         ["error K8S002 14"]),
        ("[torchrun, train.py]", "{name: HEAD, value: node-0}, {name: MASTER_ADDR, value: $HEAD}", ["error K8S002 14"]),
    ],
)  # fmt: skip
def test_only_names_in_parentheses_are_replaced(run: Run, command: str, env: str, expected: list[str]) -> None:
    assert shown(run("job.yaml", job(command, env=env), "K8S002")) == expected


@pytest.mark.parametrize(
    ("command", "env", "image"),
    [
        ("[torchrun, --node_rank=$(JOB_COMPLETION_INDEX), train.py]", "", "a:1"),
        ('[bash, -c, "torchrun --node_rank=$JOB_COMPLETION_INDEX train.py"]', "", "a:1"),
        ('[/bin/bash, -lc, "exec torchrun --nnodes=$NNODES train.py"]', LITERAL, "a:1"),
        ('[bash, -euo, pipefail, -c, "torchrun --nnodes=$NNODES train.py"]', LITERAL, "a:1"),
        ("[torchrun, '--nnodes=${NNODES}', train.py]", "", "a:1"),  # envsubst, by its only sign
        ("[torchrun, '--nnodes=${NNODES}', train.py]", "{name: NNODES, value: '${NNODES}'}", "a:1"),
        ("[torchrun, '--nnodes=${NNODES}', train.py]", LITERAL, "${IMAGE_URI}"),  # envsubst fills the image too
        ("[torchrun, --nnodes=2, train.py, '--data=${NNODES}']", LITERAL, "a:1"),  # the program may expand it
        ("[python, train.py, '--run=${oc.env:NNODES}']", LITERAL, "a:1"),  # Hydra's
        ("[/entrypoint.sh, torchrun, --nnodes=$NNODES, train.py]", LITERAL, "a:1"),
        ("[torchrun, --rdzv_id=$NNODES, train.py]", LITERAL, "a:1"),  # any text will do
        ("[torchrun, --nnodes=$$NNODES, train.py]", LITERAL, "a:1"),
        ("[bash, -c, 'eval $START']",
         "{name: START, value: 'torchrun --node_rank=$JOB_COMPLETION_INDEX train.py'}", "a:1"),
        ("[bash, -c, 'MASTER_ADDR=$(hostname) ./run.sh']", LITERAL + ", {name: MASTER_ADDR, value: $NNODES}", "a:1"),
    ],
)  # fmt: skip
def test_what_a_shell_or_a_pipeline_replaces_is_left_alone(run: Run, command: str, env: str, image: str) -> None:
    assert run("job.yaml", job(command, env=env, image=image), "K8S002") == []


def test_names_of_templates_are_left_alone(run: Run) -> None:
    text = job("[torchrun, '--nnodes=${NNODES}', train.py]", env=LITERAL)
    assert shown(run("job.yaml", text, "K8S002")) == ["error K8S002 15"]
    assert run("job.yaml.tpl", text, "K8S002") == []
    assert run("job-template.yaml", text, "K8S002") == []
    assert run("b/job.yaml", "# envsubst < job.yaml | kubectl apply -f -\n" + text, "K8S002") == []


def test_the_entrypoint_of_an_image_may_be_a_shell(run: Run) -> None:
    text = job("null", "[torchrun, '--node_rank=$JOB_COMPLETION_INDEX', train.py]")
    assert shown(run("job.yaml", text, "K8S002")) == ["info K8S002 16"]


def test_torchrun_refuses_the_text() -> None:
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torchrun is not installed")
    ended = subprocess.run(
        [torchrun, "--node_rank=$JOB_COMPLETION_INDEX", "train.py"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2
    assert "invalid int value: '$JOB_COMPLETION_INDEX'" in ended.stderr


OPERATOR = """apiVersion: kubeflow.org/v1
kind: {kind}
metadata: {{name: a}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: a:1
            command: [torchrun, "--master_addr=$MASTER_ADDR", --nnodes=2, train.py]
"""


def test_what_the_training_operator_sets_is_known(run: Run) -> None:
    assert shown(run("a.yaml", OPERATOR.format(kind="PyTorchJob"), "K8S002")) == ["error K8S002 13"]
    assert run("a.yaml", OPERATOR.format(kind="OtherJob"), "K8S002") == []


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("[sh, -c]", "[torchrun, --standalone, --nproc_per_node=8, train.py]", ["error K8S002 16"]),
        ("[/bin/bash, -lc]", "[python, train.py]", ["error K8S002 16"]),
        ("[bash, -c, torchrun, --standalone, train.py]", "[]", ["error K8S002 15"]),
        ("[bash, -euo, pipefail, -c]", "['cd /work', 'torchrun --standalone train.py']", ["error K8S002 16"]),
        ("[sh, -c]", "[python train.py, --epochs, '3']", ["error K8S002 16"]),
        ("[sh, -c, ./start.sh, worker]", "[]", ["error K8S002 15"]),
    ],
)
def test_words_behind_the_script_of_a_shell(run: Run, command: str, args: str, expected: list[str]) -> None:
    assert shown(run("job.yaml", job(command, args), "K8S002")) == expected


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("[sh, -c]", "['torchrun --standalone train.py']"),
        ("[sh, -c, 'exec \"$@\"', --]", "[torchrun, --standalone, train.py]"),
        ("[sh, -c, 'torchrun $0 train.py', --standalone]", "[]"),
        ("[bash, -c, 'python train.py \"${1}\"', _, '3']", "[]"),
        ("[bash, -c, 'cd /work; torchrun --standalone train.py', bash]", "[]"),  # a name for $0
        ("[bash, -c]", "['set -e\n\n  python train.py', --]"),
        ("[bash, train.sh, -c, config.yaml, --fast]", "[]"),  # options of the script
        ("[bash, -c, 'while getopts a: o; do :; done', sh, -a]", "[]"),
        ("[tini, --, torchrun, -c, a, b]", "[]"),
        ("[sh, -c]", "['$(START)', --fast, train.py]"),
    ],
)
def test_words_that_a_script_reads(run: Run, command: str, args: str) -> None:
    assert run("job.yaml", job(command, args), "K8S002") == []


def test_a_shell_runs_the_first_word_alone() -> None:
    ended = subprocess.run(["sh", "-c", "echo", "--standalone", "train.py"], capture_output=True, text=True)
    assert ended.stdout == "\n"


PIPE = "['python train.py --epochs 3 2>&1 | tee /logs/train.log']"


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("[bash, -c]", PIPE, ["warning K8S002 16"]),
        ("[sh, -c]", "['cd /work && torchrun train.py | tee log']", ["warning K8S002 16"]),
        ("[/bin/bash, -lc]", "['set -e; python train.py | tee log']", ["warning K8S002 16"]),
        ("[bash, -c]", "['set -o pipefail; python train.py | tee log']", []),
        ("[bash, -o, pipefail, -c]", PIPE, []),
        ("[bash, -c]", "['python train.py | tee log; exit ${PIPESTATUS[0]}']", []),
        ("[bash, -c]", "['python train.py | tee log; ls /logs']", []),
        ("[bash, -c]", "['nvidia-smi | tee log']", []),
        ("[bash, -c]", "['python train.py > log 2>&1']", []),
    ],
)
def test_status_of_a_pipe_into_tee(run: Run, command: str, args: str, expected: list[str]) -> None:
    text = job(command, args)
    assert shown(run("job.yaml", text, "K8S002")) == expected
    server = text.replace("batch/v1", "apps/v1").replace("kind: Job", "kind: Deployment")
    assert run("job.yaml", server, "K8S002") == []  # it is started again, whatever its status


@pytest.mark.parametrize("word", ["while", "export", "source", "ulimit"])
def test_a_word_of_the_shell_is_no_program(run: Run, word: str) -> None:
    assert shown(run("a.yaml", job(f"[{word}, a, b]"), "K8S002")) == ["error K8S002 15"]
    assert run("a.yaml", job(f'[sh, -c, "{word} a b"]'), "K8S002") == []
    assert shutil.which(word, path="/usr/bin:/bin") is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('["torchrun --nproc_per_node=4 train.py"]', ["error K8S002"]),
        ('["python3 train.py", "--lr=1"]', ["error K8S002"]),
        ('["/bin/bash -c", "python train.py"]', ["error K8S002"]),
        ('["bash", "-c", "torchrun --nproc_per_node=4 train.py"]', []),
        ('["/opt/my tools/start"]', []),
        ('["{{ .Values.command }} --x"]', []),
    ],
)
def test_a_command_line_is_no_program(run: Run, command: str, expected: list[str]) -> None:
    assert [f"{f.level} {f.code}" for f in run("job.yaml", job(command), "K8S002") if f.level != "info"] == expected


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("['sleep infinity']", "[]", ["error K8S002 15"]),
        ("['./run.sh --gpu 1']", "[]", ["error K8S002 15"]),
        ("['cd /work && python train.py']", "[]", ["error K8S002 15"]),
        ("[python, train.py, '&&', echo, done]", "[]", ["warning K8S002 15"]),
        ("[python, train.py, '2>&1']", "['&&', ls]", ["warning K8S002 15"]),
        ("[python, train.py]", "['--lr 0.1', '--epochs 3']", ["warning K8S002 16"]),
        ("[torchrun, '--nproc_per_node 8', train.py]", "[]", ["warning K8S002 15"]),
    ],
)
def test_words_that_only_a_shell_reads(run: Run, command: str, args: str, expected: list[str]) -> None:
    assert shown(run("job.yaml", job(command, args), "K8S002")) == expected


def test_a_line_of_the_shell_stays_one(run: Run) -> None:
    [one] = run("job.yaml", job("['cd /work && python train.py']"), "K8S002")
    [other] = run("job.yaml", job("['sleep 9']"), "K8S002")
    assert [one.fix, other.fix] == [
        'write [sh, -c, "…"] around it', 'write each word as an element of its own, or [sh, -c, "…"] around it'
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("[python, -c, 'import torch; print(1)']", "[]"),
        ("[python, train.py, --prompt, '--lr 0.1']", "[]"),  # the value of an option
        ("[python, train.py, --prompt=a b]", "[]"),
        ("[/entrypoint.sh, python, train.py]", "['--lr 0.1', '&&', ls]"),  # it may eval them
        ("[]", "['--lr 0.1']"),
        ("[mpirun, bash, -c, 'python train.py && ls']", "['&&']"),
        ("['$(PROGRAM) --fast']", "[]"),
        ("[python, train.py, '--model $MODEL']", "[]"),
    ],
)
def test_words_that_are_taken_as_they_are(run: Run, command: str, args: str) -> None:
    assert run("job.yaml", job(command, args), "K8S002") == []


def test_argparse_refuses_an_option_with_its_value_in_one_word() -> None:
    program = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--lr'); p.parse_args()"
    ended = subprocess.run([sys.executable, "-c", program, "--lr 0.1"], capture_output=True, text=True)
    assert "unrecognized arguments: --lr 0.1" in ended.stderr
