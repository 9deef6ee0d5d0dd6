"""Manifests: the CRDs' own models and the Kubernetes schemas accept them, and nothing a job says is lost."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models.io_k8s_apimachinery_pkg_api_resource_quantity import (
    IoK8sApimachineryPkgApiResourceQuantity as Quantity,
)
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

from crd_schema import crd_schema
from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.kinds import node_number
from trainwright.schedulers.kubernetes.pod import LONGEST, PodSettings, object_name
from trainwright.schedulers.kubernetes.ray import ray_state
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler

SOURCE = Path(__file__).parents[3] / "src"
NODES = ("pytorch", "node", "worker", "ray-worker")
GROUNDS = PodSettings(
    namespace="training",
    instance="p5.48xlarge",
    claims={"/fsx": "fsx-claim"},
)
LAUNCH = Launch(
    name="pretrain",
    command=("python", "-m", "trainwright.train", "--model", "llama3.1-8b"),
    folder=Path("/fsx/runs/pretrain"),
    nodes=4,
    processes=8,
    gpus=8,
    container="example.com/train:1.2",
    environment=(EnvVar("FI_EFA_USE_HUGE_PAGE", "0", "fork with huge pages runs out of memory"),),
    time=3600,
    exclusive=True,
    secrets=(("HF_TOKEN", "hugging-face/token"),),
)


def manifest(kind: str, launch: Launch = LAUNCH, settings: PodSettings = GROUNDS) -> dict[str, Any]:
    return yaml.safe_load(KubernetesScheduler(settings, kind).render(launch).text)


def pods(document: Any) -> list[dict[str, Any]]:
    """Every pod specification inside a manifest."""
    if isinstance(document, list):
        return [pod for element in document for pod in pods(element)]
    if not isinstance(document, dict):
        return []
    found = [document] if "containers" in document and "image" in document["containers"][0] else []
    return found + [pod for value in document.values() for pod in pods(value)]


def with_quantities(document: Any) -> Any:
    """The generated models want a quantity as an object of theirs, where the API takes plain text."""
    if isinstance(document, list):
        return [with_quantities(element) for element in document]
    if not isinstance(document, dict):
        return document
    return {
        key: {name: Quantity(text) for name, text in value.items()}
        if key in ("requests", "limits")
        else Quantity(value)
        if key == "sizeLimit"
        else with_quantities(value)
        for key, value in document.items()
    }


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "mpijob", "rayjob"])
def test_every_pod_passes_the_kubernetes_schema(kind: str) -> None:
    found = pods(manifest(kind))
    assert found
    for spec in found:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.32", strict=True)


def test_the_indexed_job_inside_a_jobset_passes_the_schema() -> None:
    inner = manifest("jobset")["spec"]["replicatedJobs"][0]["template"]["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": inner}
    kubernetes_validate.validate(job, "1.32", strict=True)


def test_the_crds_own_models_accept_jobset_and_trainjob() -> None:
    for kind, model in {"jobset": JobsetV1alpha2JobSet, "trainjob": TrainerV1alpha1TrainJob}.items():
        document = manifest(kind)
        parsed = model.model_validate(with_quantities(document))
        assert parsed.to_dict()["spec"].keys() >= document["spec"].keys(), "the model knows every key"


def test_the_training_operator_accepts_pytorchjob() -> None:
    from kubeflow.training import models

    assert set(manifest("pytorchjob")["spec"]) <= set(models.KubeflowOrgV1PyTorchJobSpec.attribute_map.values())
    policy = manifest("pytorchjob")["spec"]["runPolicy"]
    assert set(policy) <= set(models.KubeflowOrgV1RunPolicy.attribute_map.values())


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "trainjob", "mpijob", "rayjob"])
def test_nothing_the_job_says_is_lost(kind: str) -> None:
    text = KubernetesScheduler(GROUNDS, kind).render(LAUNCH).text
    for said in ("example.com/train:1.2", "vpc.amazonaws.com/efa", "hugepages-2Mi", "fsx-claim", "/fsx", "hugging-face",
                 "llama3.1-8b", "p5.48xlarge", "3600", "FI_EFA_USE_HUGE_PAGE", "training"):  # fmt: skip
        assert said in text, said
    document = manifest(kind)
    limits = [
        pod["containers"][0]["resources"]["limits"] for pod in pods(document) if "resources" in pod["containers"][0]
    ]
    limits = [one for one in limits if "nvidia.com/gpu" in one]  # a Ray cluster has a head and a submitter beside
    limits += [document["spec"]["trainer"]["resourcesPerNode"]["limits"]] if kind == "trainjob" else []
    assert {(one["nvidia.com/gpu"], one["vpc.amazonaws.com/efa"]) for one in limits} == {("8", "32")}


def test_ranks_come_from_the_cluster_not_from_a_literal() -> None:
    command = pods(manifest("pytorchjob"))[0]["containers"][0]["command"]
    assert "--node-rank=$(RANK)" in command
    assert command[-4:] == ["-m", "trainwright.train", "--model", "llama3.1-8b"]
    command = pods(manifest("jobset"))[0]["containers"][0]["command"]
    assert "--node-rank=$(JOB_COMPLETION_INDEX)" in command
    assert "--master-addr=pretrain-node-0-0.pretrain" in command


def test_without_efa_nothing_of_efa_is_asked() -> None:
    text = KubernetesScheduler(PodSettings(instance="g5.4xlarge")).render(LAUNCH).text
    assert "/efa" not in text
    assert "hugepages" not in text


def test_what_kubernetes_cannot_do_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot honour account"):
        KubernetesScheduler(GROUNDS).render(Launch("x", ("a",), Path("/x"), account="team", container="i"))
    with pytest.raises(AssertionError, match="SPC004"):
        KubernetesScheduler(GROUNDS).render(Launch("x", ("a",), Path("/x")))
    with pytest.raises(UserError, match="no kind") as caught:
        KubernetesScheduler(GROUNDS, "pytorchjobs").render(LAUNCH)
    assert caught.value.fix == "did you mean 'pytorchjob'?"


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("pretrain-20261115-031718-cd59", "pretrain-20261115-031718-cd59"),
        ("llama3.1-8b_X-20261115-031718-cd59", "llama3-1-8b-x-20261115-031718-cd59"),
        ("8b-20261115-031718-cd59", "job-8b-20261115-031718-cd59"),
        (f"{'long-' * 12}name-20261115-031718-cd59", "long-long-long-long-long-20261115-031718-cd59"),
    ],
)
def test_an_objects_name_is_the_runs_as_dns_allows_it(run: str, name: str) -> None:
    made = object_name(Launch("x", ("a",), Path("/fsx") / run))
    assert made == name
    assert len(made) <= LONGEST


def test_the_label_of_a_long_job_is_one_that_the_api_takes() -> None:
    label = manifest("pytorchjob", replace(LAUNCH, name=f"{'a' * 62}-b"))["metadata"]["labels"][
        "app.kubernetes.io/name"
    ]
    assert label == "a" * 62


def test_the_end_of_its_time_does_not_start_a_jobset_again() -> None:
    policy = manifest("jobset")["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 3
    [rule] = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["DeadlineExceeded"])
    assert "rules" not in manifest("jobset", replace(LAUNCH, time=None))["spec"]["failurePolicy"]


def test_mpirun_starts_after_the_workers() -> None:
    spec = manifest("mpijob")["spec"]
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    jsonschema.validate(manifest("mpijob"), crd_schema("kubeflow.org_v2beta1_MPIJob"))


def test_a_secret_is_named_with_its_key() -> None:
    with pytest.raises(AssertionError, match="SPC004"):
        KubernetesScheduler(GROUNDS).render(replace(LAUNCH, secrets=(("HF_TOKEN", "hf_abc"),)))


def test_a_rank_under_mpi_learns_its_place() -> None:
    launcher = pods(manifest("mpijob"))[0]["containers"][0]
    assert {one["name"] for one in launcher["env"]} == {"HF_TOKEN"}
    words = launcher["command"][launcher["command"].index("bash") :]
    place = {"RANK": "9", "SIZE": "32", "LOCAL_RANK": "1", "LOCAL_SIZE": "8"}
    env = {f"OMPI_COMM_WORLD_{name}": value for name, value in place.items()} | {"PATH": os.environ["PATH"]}
    show = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"; echo "$@"'
    done = subprocess.run(
        [*words[: words.index("python")], "bash", "-c", show, *words[words.index("python") :]],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == ("9 32 1 8 pretrain-worker-0.pretrain 29400\n-m trainwright.train --model llama3.1-8b\n"), (
        "the first word after the script is $0"
    )


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "trainjob", "mpijob", "rayjob"])
def test_a_job_waits_in_the_kueue_of_the_cluster(kind: str) -> None:
    made = manifest(kind, settings=replace(GROUNDS, kueue="team-a"))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert "kueue" not in str(manifest(kind)), "without Kueue nothing of it is written"


@pytest.mark.parametrize(("kind", "pods"), [("pytorchjob", 4), ("mpijob", 4)])
def test_all_pods_start_or_none_where_the_operator_has_a_gang_scheduler(kind: str, pods: int) -> None:
    policy = manifest(kind, settings=replace(GROUNDS, gang="volcano"))["spec"]["runPolicy"]
    assert policy["schedulingPolicy"] == {"minAvailable": pods}
    assert "schedulingPolicy" not in manifest(kind)["spec"]["runPolicy"]


@pytest.mark.parametrize(
    ("pod", "number"),
    [
        ("run-master-0", 0), ("run-worker-0", 1), ("run-worker-10", 11), ("run-node-0-3-x7k2p", 3),
        ("run-raycluster-abcde-head-x2", None), ("run", None),
    ],
)  # fmt: skip
def test_a_pods_name_says_which_node_it_is(pod: str, number: int | None) -> None:
    assert node_number(pod) == number


def test_a_rayjob_has_one_worker_per_node_and_a_driver_that_survives_every_shell() -> None:
    spec = manifest("rayjob")["spec"]
    [workers] = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 4
    assert "command" not in workers["template"]["spec"]["containers"][0], "KubeRay starts Ray in it"
    head = spec["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0", "no rank runs on the head"
    env = {one["name"]: one.get("value", "") for one in head["template"]["spec"]["containers"][0]["env"]}
    # What Kubernetes leaves of a variable, and what `ray job submit` leaves of an entrypoint.
    job = json.loads(env["TRAINWRIGHT_RAY_JOB"].replace("$$(", "$("))
    assert (job["nodes"], job["gpus"]) == (4, 8)
    assert "--node-rank=$(NODE_RANK)" in job["command"]
    assert subprocess.list2cmdline(shlex.split(spec["entrypoint"])) == spec["entrypoint"]
    show = "class Ray: pass\nprint(__name__)\n"
    here = {"PATH": os.environ["PATH"], "TRAINWRIGHT_RAY_DRIVER": show}
    done = subprocess.run(["bash", "-c", spec["entrypoint"]], env=here, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__\n"
    compile(env["TRAINWRIGHT_RAY_DRIVER"].replace("$$(", "$("), "driver", "exec")


def test_ranks_of_a_rayjob_are_signalled_before_ray_and_have_time_to_save(tmp_path: Path) -> None:
    """Kubernetes would signal Ray, which kills them. The hooks are run here as the kubelet runs them: the node's
    signals the command that the driver started, and both wait until it has ended."""
    cluster = manifest("rayjob")["spec"]["rayClusterSpec"]
    node = cluster["workerGroupSpecs"][0]["template"]["spec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert node["terminationGracePeriodSeconds"] == head["terminationGracePeriodSeconds"] == LAUNCH.grace
    saves = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(75)))"
    rank = [sys.executable, "-c", f"{saves}; print('ready', flush=True)\nwhile True: signal.pause()"]
    here = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    program = (
        "import os, sys; from trainwright.schedulers.kubernetes.ray_driver import Node, note\n"
        "note('driver', os.getpid())\n"
        "for said in Node().run(sys.argv[1:], {}): print(said, flush=True)"
    )
    words = [sys.executable, "-c", program, *rank]
    with subprocess.Popen(words, env=here, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        hooks = [pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] for pod in (head, node)]
        waiting = subprocess.Popen(hooks[0], env=here)
        assert subprocess.run(hooks[1], env=here, timeout=60, check=True)
        assert driver.communicate(timeout=60)[0] == "saved\n75\n"
        assert waiting.wait(60) == 0
    (tmp_path / "never-began").mkdir()
    for place in (tmp_path, tmp_path / "never-began"):  # a job that is over, and a pod that ends before it began
        after = [subprocess.run(hook, env={**here, "TMPDIR": str(place)}, timeout=60).returncode for hook in hooks]
        assert after == [0, 0], "the pod ends at once"


def test_a_pod_of_ours_can_write_whoever_it_runs_as() -> None:
    """A file system that the plan made begins with root as its owner; EFA locks more memory than others may."""
    settings = replace(GROUNDS, shared=("/fsx",))
    one = replace(LAUNCH, nodes=1)
    for kind in ("pytorchjob", "jobset", "mpijob", "rayjob"):
        spec = next(p for p in pods(manifest(kind, one, settings)) if p["containers"][0]["name"] in NODES)
        [first] = spec["initContainers"]
        assert first["securityContext"] == {"runAsUser": 0}
        assert first["command"][2].endswith("chmod 1777 /fsx /fsx/trainwright /fsx/trainwright/runs")
        user = spec["containers"][0].get("securityContext", {}).get("runAsUser")
        assert user == (0 if kind == "mpijob" else None), "sshd and its keys are root's"
    for spec in pods(manifest("pytorchjob")):
        assert spec["containers"][0]["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}
        assert "initContainers" not in spec, "somebody else's file system is not touched"


@pytest.mark.parametrize("store", ["", "s3://bucket/code"])
def test_a_trainjob_unpacks_its_code_itself(store: str, tmp_path: Path) -> None:
    """Its definition takes no init container: the trainer's own command unpacks, and the ranks do not see how."""
    run, code = tmp_path / "run", tmp_path / "code"
    launch = replace(
        LAUNCH, code=str(code), code_store=store, folder=run, launcher="plain",
        command=("python3", "train.py", "--note", "a 'b' \"c\" $PATH"),
    )  # fmt: skip
    document = manifest("trainjob", launch)
    jsonschema.validate(document, crd_schema("trainer.kubeflow.org_v1alpha1_TrainJob"))
    [patch] = document["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod, trainer = patch["template"]["spec"]["template"]["spec"], document["spec"]["trainer"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts.keys() <= {volume["name"] for volume in pod["volumes"]}
    assert mounts["code"] == str(code)

    code.mkdir()
    held = run if store else tmp_path / mounts["archive"].lstrip("/")
    held.mkdir(parents=True)
    script = (
        "import os, sys; print(*(n for n in os.environ if n.startswith('TRAINWRIGHT_CODE')), *sys.argv[1:], sep='|')"
    )
    (tmp_path / "train.py").write_text(script)
    subprocess.run(["tar", "-czf", held / "code.tar.gz", "-C", tmp_path, "train.py"], check=True)
    secrets = {line["name"] for line in trainer["env"] if "CODE" in line["name"]}
    assert secrets == ({"TRAINWRIGHT_CODE_URL", "TRAINWRIGHT_CODE_SHA256"} if store else set())
    given = {"PET_NODE_RANK": "0", "PET_MASTER_ADDR": "here", "PET_MASTER_PORT": "1"}
    words = [re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], word) for word in trainer["command"]]
    words = [word if store else word.replace("/trainwright/archive", str(held)) for word in words]
    digest = hashlib.sha256((held / "code.tar.gz").read_bytes()).hexdigest()
    here = {**os.environ, **dict.fromkeys(secrets, "http://127.0.0.1:1"), "TRAINWRIGHT_CODE_SHA256": digest}
    done = subprocess.run(words, cwd=code, env=here, capture_output=True, text=True)
    assert done.stdout == "--note|a 'b' \"c\" $PATH\n", done.stderr


def test_a_queue_without_efa_is_asked_for_none() -> None:
    asked = pods(manifest("pytorchjob", settings=replace(GROUNDS, efa=False)))[0]["containers"][0]["resources"]
    assert set(asked["limits"]) == {"nvidia.com/gpu"}


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "trainjob", "mpijob", "rayjob"])
def test_the_nodes_of_a_job_should_be_near_each_other(kind: str) -> None:
    layer = "topology.k8s.aws/network-node-layer-3"
    text = json.dumps(manifest(kind, settings=replace(GROUNDS, topology=layer)))
    assert text.count(f'"kueue.x-k8s.io/podset-preferred-topology": "{layer}"') == (2 if kind == "pytorchjob" else 1)
    assert layer not in json.dumps(manifest(kind, replace(LAUNCH, nodes=1), replace(GROUNDS, topology=layer)))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "pending"), ({"jobDeploymentStatus": "Initializing"}, "pending"),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, "running"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "completed"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, "failed"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, "failed"),
        ({"jobDeploymentStatus": "SomethingNew"}, "unknown"),
    ],
)  # fmt: skip
def test_the_state_of_a_rayjob_in_our_words(status: dict[str, str], state: str) -> None:
    assert ray_state(status)[0] == state


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset", "rayjob"])
def test_a_text_that_looks_like_a_number_is_quoted(kind: str) -> None:
    """kubectl reads YAML 1.2, where `1e-5` without quotes is a number, which no argument may be."""
    launch = replace(LAUNCH, command=(*LAUNCH.command, "--lr", "1e-5", "--eps", "1.e-08"))
    text = KubernetesScheduler(GROUNDS, kind).render(launch).text
    plain = [line for line in text.splitlines() if re.search(r"""(?<!['"\d.e-])\b\d[\d.]*e-\d+\s*$""", line)]
    assert plain == []
    assert "1e-5" in text
