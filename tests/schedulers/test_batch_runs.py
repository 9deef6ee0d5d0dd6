"""A run on AWS Batch from `submit` to `cancel`, through the command line, against moto; and the command of its
containers, for real, with two nodes on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
import yaml
from click.testing import CliRunner, Result
from moto import mock_aws

from trainwright.cli.main import cli
from trainwright.runs import request, store, submission
from trainwright.schedulers import batch
from trainwright.schedulers.base import Launch
from trainwright.schedulers.torchrun import PORT, SHUTDOWN_TIMEOUT, before_stop

SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hugging-face"
ROLE = "arn:aws:iam::123456789012:role"
SPEC = {
    "name": "llama", "platform": "batch", "region": "us-east-1",
    "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 4}],
    "storage": [{"mount": "/fsx", "lustre": {}}],
    "batch": {"execution_role": f"{ROLE}/fetch", "job_role": f"{ROLE}/s3"},
    "jobs": [{
        "name": "llama3.1", "recipe": "llama3.1-8b-debug", "container": "example.com/t:1", "nodes": 2,
        "secrets": {"HF_TOKEN": SECRET},
    }],
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    with mock_aws(config={"batch": {"use_docker": False}}):
        client = boto3.client("batch")
        role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        made = client.create_compute_environment(
            computeEnvironmentName="environment", type="UNMANAGED", state="ENABLED", serviceRole=role
        )
        order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
        client.create_job_queue(jobQueueName="llama-train", state="ENABLED", priority=1, computeEnvironmentOrder=order)
        yield path


def tell(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def test_a_run_lives_on_batch(spec: Path) -> None:
    name = tell("submit", spec).stdout.strip()
    run = store.find(name)
    assert (run.scheduler, run.at) == ("batch", {"queue": "llama-train", "region": "us-east-1"})
    [kept] = boto3.client("batch").describe_job_definitions()["jobDefinitions"]
    assert (kept["jobDefinitionName"], kept["type"]) == ("llama3-1", "multinode")
    made = json.loads((run.folder / "job.json").read_text())  # moto keeps no nodeProperties
    [group] = made["nodeProperties"]["nodeRangeProperties"]
    assert group["container"]["secrets"] == [{"name": "HF_TOKEN", "valueFrom": SECRET}]
    assert group["container"]["jobRoleArn"].endswith("role/s3")
    assert str(run.folder) not in json.dumps(made)

    [fact] = json.loads(tell("runs", "--json").stdout)
    assert (fact["run"], fact["job"]) == (name, run.job_id)
    # moto ends a job at once; what it lacks is the log, so the container's is written here as the agent would.
    stream = boto3.client("batch").describe_jobs(jobs=[run.job_id])["jobs"][0]["container"]["logStreamName"]
    write_log(stream, "[rank0]:step 1", "[rank1]:hello", "the end")
    assert tell("logs", name).stdout.splitlines() == ["[rank-0] step 1", "[rank-1] hello", "[node-0] the end"]
    assert tell("logs", name, "--rank", "1").stdout.splitlines() == ["[rank-1] hello"]
    followed = tell("logs", "-f", name)
    assert followed.stdout.splitlines()[-1] == "[node-0] the end"
    assert (followed.exit_code, "completed" in followed.stderr) == (0, True)
    assert json.loads(tell("jobs", "--json").stdout) == []
    assert tell("cancel", name).exit_code == 0


def write_log(stream: str, *lines: str) -> None:
    logs = boto3.client("logs")
    logs.create_log_group(logGroupName="/aws/batch/job")
    logs.create_log_stream(logGroupName="/aws/batch/job", logStreamName=stream)
    now = int(time.time() * 1000)  # CloudWatch refuses what is older than two weeks
    events = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
    logs.put_log_events(logGroupName="/aws/batch/job", logStreamName=stream, logEvents=events)


def test_a_queue_of_ones_own(spec: Path) -> None:
    found = submission.plan(
        request.order_for(request.SubmitRequest(str(spec), overrides=("batch.queues={train: my-queue}",)))
    )
    assert found.run.at["queue"] == "my-queue"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_the_containers_command_trains_over_two_nodes(tmp_path: Path) -> None:
    """Each node gets what Batch gives it, and runs the very command of the definition; only the port is a free one."""
    options = (
        "--model llama3.2-1b-debug --data builtin:stdlib --steps 2 --sequence 32 --batch 4 --checkpoint-every never"
    )
    launch = Launch(
        "job", ("python3", "-m", "trainwright.train", *options.split()), tmp_path / "run", nodes=2, container="i"
    )
    launch = replace(launch, processes=1)
    words = batch.command(launch).replace(f"={PORT} ", f"={free_port()} ")
    given = {
        **os.environ, "AWS_BATCH_JOB_NUM_NODES": "2", "TRAINWRIGHT_RUN": str(launch.folder), "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]:", "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "127.0.0.1",
        "PYTHONPATH": str(Path(request.__file__).parents[2]),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    nodes = [
        subprocess.Popen(["bash", "-c", words], env={**given, "AWS_BATCH_JOB_NODE_INDEX": str(index)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for index in range(2)
    ]  # fmt: skip
    try:
        said = [node.communicate(timeout=120)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], said
    assert any(line.startswith("[rank0]:") for line in said[0].splitlines()), said[0]
    steps = [json.loads(line)["step"] for line in (launch.folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    assert list((launch.folder / "logs").rglob("stdout.log")), "the ranks' output stays in the run folder"


SLOW_TO_SAVE = """
import os, signal, sys, threading
def stop(*_):
    threading.Event().wait(3)
    open(sys.argv[1], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
with open(sys.argv[2], "w") as ready:
    ready.write("ready")
signal.pause()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["Batch", "Kubernetes"])
def test_ranks_have_longer_to_save_than_torchrun_gives_them(tmp_path: Path, way: str) -> None:
    """This torchrun kills ranks one second after SIGTERM, as others do after 30; saving takes three. The ranks get the
    signal in its place: from the container's command on Batch, from the hook before the stop on Kubernetes."""
    (tmp_path / "train.py").write_text(SLOW_TO_SAVE)
    os.mkfifo(tmp_path / "ready")
    rank = ("python3", str(tmp_path / "train.py"), str(tmp_path / "saved"), str(tmp_path / "ready"))
    launch = Launch("job", rank, tmp_path / "run", nodes=1, processes=1, container="i")
    words = batch.command(launch).replace(f"={PORT} ", f"={free_port()} ")
    given = {
        **os.environ, "AWS_BATCH_JOB_NUM_NODES": "1", "AWS_BATCH_JOB_NODE_INDEX": "0", SHUTDOWN_TIMEOUT: "1",
        "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    node = subprocess.Popen(["bash", "-c", words], env=given)
    try:
        assert (tmp_path / "ready").read_text() == "ready"
        if way == "Batch":
            node.terminate()
        else:
            agent = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().strip()
            hook = [word.replace("/proc/1/", f"/proc/{agent}/") for word in before_stop()]
            subprocess.run(hook, timeout=120)
            assert (tmp_path / "saved").exists(), "the hook holds the stop back until the ranks have ended"
        assert node.wait(timeout=120) == 0
    finally:
        node.kill()
    assert (tmp_path / "saved").exists()
