"""From an empty account to a running cluster and back, through the public commands alone, as processes that are killed
on the way. The stand-in is a process of its own: what AWS has outlives every command."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from standin.exposure import TAG, instances, open_rules, tagged, weak_buckets
from standin.head import Head, head_node
from standin.outside import ROOT, Server, left, prepare_account, real_pcluster, small_pcluster, stand_in
from standin.secrecy import Watcher, watch

from trainwright.spec.defaults import resolve
from trainwright.spec.load import load
from trainwright.spec.model import Spec

EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.yaml") if "platform: parallelcluster" in p.read_text())
WITH_THE_REAL_ONE = "p5-reservation"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A stand-in for one test."""
    with stand_in(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A stand-in for tests that leave nothing in it, with the small pcluster."""
    with stand_in(tmp_path_factory.mktemp("server")) as started:
        small_pcluster(started)
        yield started


@pytest.fixture(scope="module")
def watcher(shared_server: Server) -> Watcher:
    return watch(shared_server)


@pytest.fixture(scope="module")
def shared_head(shared_server: Server) -> Iterator[Head]:
    """The Slurm behind all clusters of that stand-in."""
    with head_node(shared_server) as started:
        yield started


JOB = """
  - name: hello
    command: [bash, -c, "echo hello from the node"]
    launcher: plain
    queue: QUEUE
    nodes: 1
    requeue: false
"""


def with_a_job(example: str, folder: Path) -> Path:
    """An example with a short job. The Slurm behind the stand-in has no /fsx, so the job brings its own Python."""
    text = (ROOT / "examples" / f"{example}.yaml").read_text()
    queue = yaml.safe_load(text)["queues"][0]["name"]
    jobs = "" if "\njobs:" in text else "\njobs:"
    file = folder / f"{example}.yaml"
    file.write_text(f"{text}{jobs}{JOB.replace('QUEUE', queue)}runs: {folder / 'runs'}\n")
    return file


def goes_through_a_job(server: Server, head: Head, file: Path, spec: Spec) -> None:
    """submit, follow and read the log of a job, through Session Manager to the head node of this cluster."""
    head.let_in("my-key", spec.region or "")
    submitted = server.run("submit", str(file), "hello", "--set", "software.runtime=none", "--follow")
    assert "completed, exit status 0" in submitted
    assert any(f"--region {spec.region} ssm start-session" in session for session in head.sessions)
    assert "1 idle" in server.run("status", str(file), "--nodes"), "nodes as Slurm sees them, beside those of EC2"
    run = next(line for line in submitted.splitlines() if line.startswith("hello-"))
    assert "hello from the node" in server.run("logs", run)


@pytest.mark.slow
@pytest.mark.judge
@pytest.mark.slurm
@pytest.mark.timeout(900)  # a dozen runs of pcluster, each of which starts Node.js
def test_from_an_empty_account_and_back_with_the_real_pcluster(server: Server, tmp_path: Path) -> None:
    real_pcluster(server)
    watcher = watch(server)
    watcher.folders = [tmp_path / "plan", tmp_path / "runs"]
    file = with_a_job(WITH_THE_REAL_ONE, tmp_path)
    spec, _ = resolve(load(file).spec)
    prepare_account(server, spec)
    region = spec.region or ""
    server.run("plan", str(file), "-o", str(tmp_path / "plan"))
    dry = server.run("up", str(file), "--dry-run")
    assert "make             cluster p5-reservation" in dry
    assert left(server, region) == {}, "a dry run makes nothing"
    for line in ("network: creating", "network: ready", "lustre-fsx: ready", "cluster p5-reservation: creating"):
        server.killed(line, "up", str(file), "--yes")
    server.run("up", str(file), "--yes")
    whole = left(server, region)
    assert whole["instance"] == ["m5.8xlarge running x1", "p5.48xlarge running x4"]
    assert whole["file system"] == ["LUSTRE 4800 AVAILABLE x1", "OPENZFS 512 AVAILABLE x1"]
    assert all(name.endswith("x1") for kind in ("stack", "vpc", "nat", "address", "key") for name in whole[kind])
    status = json.loads(server.run("status", str(file), "--json"))
    assert (status["state"], status["queues"][0]["states"]) == ("running", {"running": 4})
    assert "p5-reservation" in server.run("status", "--all", "--region", region)
    before = own_seconds()
    assert "unchanged        cluster p5-reservation" in server.run("up", str(file), "--yes")
    assert own_seconds() - before < 3.0
    with head_node(server) as head:
        goes_through_a_job(server, head, file, spec)
        refuses_to_end_a_job(server, file)
    stands_safely(server, watcher, spec)
    changes_while_it_is_up(server, file)
    server.killed("cluster p5-reservation: removing", "down", str(file), "--yes")
    kept = server.run("down", str(file), "--yes")
    assert "left: stack p5-reservation-lustre-fsx" in kept
    data = [word for key in ("bucket", "lustre-fsx", "openzfs-home") for word in ("--delete-data", key)]
    server.killed("lustre-fsx: removing", "down", str(file), "--yes", *data)
    assert "nothing of p5-reservation is left" in server.run("down", str(file), "--yes", *data)
    assert left(server, region) == {}


def changes_while_it_is_up(server: Server, file: Path) -> None:
    """A queue comes and goes by the real `pcluster update-cluster`, with its validators and its own idea of what needs
    the nodes stopped; what cannot change is refused before anything happens."""
    plain = file.read_text()
    file.write_text(
        plain.replace("queues:\n", "queues:\n  - {name: debug, instance: g5.2xlarge, count: {min: 0, max: 1}}\n")
    )
    assert "live     cluster.yaml Scheduling.SlurmQueues[debug]" in server.run("up", str(file), "--dry-run")
    server.run("up", str(file), "--yes")
    assert [queue["name"] for queue in json.loads(server.run("status", str(file), "--json"))["queues"]] == [
        "debug",
        "train",
    ]
    file.write_text(plain)
    assert "needs the compute nodes stopped" in refused(server, "up", str(file), "--yes")
    server.killed("cluster p5-reservation: stopping", "up", str(file), "--yes", "--force")
    server.run("up", str(file), "--yes", "--force")
    after = json.loads(server.run("status", str(file), "--json"))
    assert [(queue["name"], queue["states"]) for queue in after["queues"]] == [("train", {"running": 4})]
    words = ("up", str(file), "--yes", "--set", "head.instance=m5.4xlarge")
    assert "cannot be changed on a cluster that is up" in refused(server, *words)


def refused(server: Server, *words: str) -> str:
    """What a command said that must not succeed."""
    process = server.start(*words)
    said, _ = process.communicate(timeout=240)
    assert process.returncode in (1, 2), said
    return said


def refuses_to_end_a_job(server: Server, file: Path) -> None:
    """`down` lists what runs and removes nothing; the job goes on."""
    words = ("submit", str(file), "--set", "software.runtime=none", "--command", "--launcher", "plain", "--nodes", "1")
    run = next(line for line in server.run(*words, "--", "sleep", "600").splitlines() if line.startswith("sleep-"))
    down = server.start("down", str(file), "--yes")
    said, _ = down.communicate(timeout=120)
    assert down.returncode == 1
    assert f"jobs wait or run on cluster p5-reservation (1): 2 {run} (train, running)" in said
    assert "sleep" in server.run("jobs", str(file))
    server.run("cancel", run)


def own_seconds() -> float:
    """The processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stands_safely(server: Server, watcher: Watcher, spec: Spec) -> None:
    """What came into being, asked of every resource: tags, no secret, no way in but those that the spec names."""
    region = spec.region or ""
    watcher.look_at_the_account(region)
    assert watcher.looks > 10
    assert watcher.programs > 1
    resources = list(tagged(server, region))
    assert [(kind, id) for kind, id, tags in resources if TAG not in tags] == []
    # A cluster that was down before left its logs and the secret of its database.
    own = [(kind, id, tags) for kind, id, tags in resources if tags[TAG] == spec.name]
    # A Lustre that the cluster itself makes is left out by the small pcluster.
    managed = any(item.lustre is not None and item.lustre.managed for item in spec.storage)
    assert {kind for kind, _, _ in own} >= EVERY_KIND - ({"file system"} if managed else set())
    assert {kind for kind, _, tags in resources if tags[TAG] != spec.name} <= {"log group", "secret"}
    for key, value in spec.tags.items():
        assert [(kind, id) for kind, id, tags in own if tags.get(key) != value] == []
    assert open_rules(server, region, (spec.head.ssh_from or "127.0.0.1/32",)) == []
    assert weak_buckets(server, region) == []
    assert {row["MetadataOptions"]["HttpTokens"] for row in instances(server, region)} == {"required"}


EVERY_KIND = {
    "vpc", "subnet", "internet gateway", "route table", "nat gateway", "address", "endpoint", "security group",
    "network interface", "flow log", "key pair", "instance", "volume", "file system", "log group", "role", "bucket",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.parametrize("example", [name for name in EXAMPLES if name != WITH_THE_REAL_ONE])
def test_every_example_from_plan_to_down(
    shared_server: Server, shared_head: Head, watcher: Watcher, example: str, tmp_path: Path
) -> None:
    server, file = shared_server, with_a_job(example, tmp_path)
    watcher.folders = [tmp_path / "plan", tmp_path / "runs"]
    spec, _ = resolve(load(file).spec)
    prepare_account(server, spec)
    region = spec.region or ""
    server.run("plan", str(file), "-o", str(tmp_path / "plan"))
    server.run("up", str(file), "--yes")
    stacks = [line.split()[0] for line in left(server, region)["stack"]]
    assert spec.name in stacks
    goes_through_a_job(server, shared_head, file, spec)
    stands_safely(server, watcher, spec)
    keys = [stack.removeprefix(f"{spec.name}-") for stack in stacks]
    named = [key for key in keys if key.split("-")[0] in ("bucket", "lustre", "openzfs", "accounting")]
    server.run("down", str(file), "--yes", *[word for key in named for word in ("--delete-data", key)])
    assert left(server, region) == {}


@pytest.mark.slow
@pytest.mark.slurm
def test_hyperpod_from_init_to_down(shared_server: Server, shared_head: Head, tmp_path: Path) -> None:
    """Every verb on one cluster with Slurm on HyperPod; the controller is reached as SageMaker's nodes are."""
    server, start = shared_server, tmp_path / "start.yaml"
    server.run("init", "hyperpod-p5", "-o", str(start), "--name", "pod")
    file = tmp_path / "pod.yaml"
    file.write_text(f"{start.read_text()}{JOB.replace('QUEUE', 'train')}runs: {tmp_path / 'runs'}\n")
    server.run("check", str(file))
    spec, _ = resolve(load(file).spec)
    region = spec.region or ""
    prepare_account(server, spec)
    server.run("plan", str(file), "-o", str(tmp_path / "plan"))
    assert "make             HyperPod cluster pod" in server.run("up", str(file), "--dry-run")
    assert left(server, region) == {}
    for line in ("network: ready", "scripts: ready", "HyperPod cluster pod: creating"):
        server.killed(line, "up", str(file), "--yes")
    server.run("up", str(file), "--yes")
    status = json.loads(server.run("status", str(file), "--json"))
    assert (status["state"], status["queues"][0]["states"]) == ("running", {"running": 4})
    assert "unchanged        HyperPod cluster pod" in server.run("up", str(file), "--yes")
    shared_head.let_in("my-key", region)
    assert "hello" in server.run("connect", str(file), "--", "echo", "hello")
    goes_through_a_job(server, shared_head, file, spec)
    assert "--target sagemaker-cluster:" in shared_head.sessions[-1]
    server.killed("stack pod-hyperpod: removing", "down", str(file), "--yes")
    assert "left: stack pod-lustre-fsx" in server.run("down", str(file), "--yes")
    data = [word for key in ("bucket", "lustre-fsx", "openzfs-home", "accounting") for word in ("--delete-data", key)]
    assert "nothing of pod is left" in server.run("down", str(file), "--yes", *data)
    assert left(server, region) == {}
