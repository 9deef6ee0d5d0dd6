"""Manifests near the triggers of the K8S rules, as public repositories have them: templates of other kinds, patches,
servers beside training jobs, and what the API server says about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

TEMPLATE = """apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{team: llm}}}}
spec:
  parallelism: {count}
  completions: {count}
  suspend: {flag}
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {selector}
      containers:
      - name: train
        image: {image}
        command: [bash, train.sh]
        resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


@pytest.mark.parametrize(
    ("name", "count", "flag", "selector", "image"),
    [
        ("{job_name}", "{num_nodes}", "{suspend}", "{node_selector}", "{image}"),  # Python's format
        ("JOB_NAME", "NUM_NODES", "SUSPEND", "NODE_SELECTOR", "IMAGE"),  # sed
        ("__job__", "__nodes__", "__suspend__", "__selector__", "__image__"),
        ("[JOB_NAME]", "[NUM_NODES]", "[SUSPEND]", "[SELECTOR]", "[YOUR_IMAGE]"),
        ("a", "((nodes))", "((suspend))", "((selector))", "((image))"),
        ("a", "<nodes>", "<true or false>", "<node selector>", "<image>"),
    ],
)
def test_words_that_a_script_replaces_have_no_type(
    run: Run, name: str, count: str, flag: str, selector: str, image: str
) -> None:
    text = TEMPLATE.format(name=name, count=count, flag=flag, selector=selector, image=image)
    assert run("a.yaml", text, "K8S006") == []
    wrong = TEMPLATE.format(name="a", count="two", flag="'TRUE'", selector="gpu", image="{a: b}")
    lines = [finding.span.line for finding in run("a.yaml", wrong, "K8S006")]
    assert lines == [5, 6, 7, 11, 14]


KNATIVE = """apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: llm}
spec:
  template:
    spec:
      containerConcurrency: 1
      timeoutSeconds: 600
      containers: [{name: a, image: "vllm:1", resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_pods_of_other_kinds_may_have_keys_of_their_own(run: Run) -> None:
    assert run("a.yaml", KNATIVE, "K8S006") == []
    misplaced = KNATIVE.replace("timeoutSeconds: 600", "volumeMounts: []")
    assert [finding.fix for finding in run("a.yaml", misplaced, "K8S006")] == [
        "it belongs to the container: move it there"
    ]


@pytest.mark.parametrize(
    ("old", "new", "fix"),
    [
        ("  backoffLimit: 0", "  restartPolicy: Never", "remove it: the pod's spec has it too"),
        ("  backoffLimit: 0", "  hostIPC: true", "it belongs to the pod's spec: move it there"),
        ("  backoffLimit: 0", "  resources: {}", "it belongs to the container: move it there"),
        ("  backoffLimit: 0", "  name: train", "it belongs to the metadata: move it there"),
        ("        env: []", "        limits: {}", "it belongs to the container's resources: move it there"),
        ("        env: []", "        volumes: []", "it belongs to the pod's spec: move it there"),
        ("        env: []", "        port: 80", "write ports: [{containerPort: 80}]"),
        ("        env: []", "        env: [{A: b}]", "write `name: A`, and its value behind `value:`"),
        ("        env: []", "        resources: {nvidia.com/gpu: 1}", "write it below limits"),
        ("{name: train}", "{name: train, spec: {}}", "write it beside metadata: unindent it by two spaces"),
        ("        env: []", "        env: []\n        envs: []", "move what it holds to env"),
        ("        env: []", "        gadgets: 3", "move it to where it belongs, or remove it"),
    ],
)
def test_the_fix_of_a_key_leaves_a_valid_object(run: Run, old: str, new: str, fix: str) -> None:
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n"
        "      restartPolicy: Never\n      containers:\n      - name: a\n        image: b:1\n        env: []\n"
    )
    assert [finding.fix for finding in run("a.yaml", job.replace(old, new), "K8S006")] == [fix]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("args: [-H, {Content-Type: json}]", "put it in quotes: a colon before a blank makes it a map"),
        ("env: [{name: A, value: [1]}]", 'write "1", not a list'),
        ("tty: 'True'", "write True without quotes"),
        ("tty: maybe", "write true or false"),
        ("ports: [{containerPort: '80'}]", "write 80 without quotes"),
        ("ports: [{containerPort: http}]", "write a number"),
    ],
)
def test_the_fix_of_a_type(run: Run, line: str, fix: str) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: train}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
    assert [finding.fix for finding in run("a.yaml", f"{pod}    {line}\n", "K8S006")] == [fix]
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: train}\ndata: {train.yaml: {epochs: 3}}\n"
    assert [finding.fix for finding in run("a.yaml", config, "K8S006")] == [
        "write `train.yaml: |`, with these lines below it"
    ]


OLD = """apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: gpu}
spec:
  template: {metadata: {labels: {app: gpu}}, spec: {containers: [{name: a, image: b}]}}
"""


def test_a_newer_deployment_needs_its_selector(run: Run) -> None:
    [finding] = run("a.yaml", OLD, "K8S006")
    assert finding.fix == "write apps/v1, and spec.selector.matchLabels with the labels of the pod template"
    [finding] = run("a.yaml", OLD + "  selector: {matchLabels: {app: gpu}}\n", "K8S006")
    assert finding.fix == "write apps/v1"


CLAIM = """apiVersion: v1
kind: PersistentVolume
metadata: {name: fsx}
spec: {capacity: {storage: 1200Gi}, accessModes: [ReadWriteMany]CLAIM}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: training}
spec: {accessModes: [ReadWriteMany], volumeName: fsx, resources: {requests: {storage: 2400Gi}}}
"""


def test_a_volume_that_names_its_claim_is_bound_to_it(run: Run) -> None:
    assert shown(run("a.yaml", CLAIM.replace("CLAIM", ""), "K8S006")) == ["error K8S006 9"]
    assert run("a.yaml", CLAIM.replace("CLAIM", ", claimRef: {name: training}"), "K8S006") == []


@pytest.mark.parametrize(
    ("kind", "why"), [("Job", "refuses the whole object"), ("PyTorchJob", "the object itself is accepted")]
)
def test_the_reason_says_what_is_refused(run: Run, kind: str, why: str) -> None:
    pod = "{containers: [{name: pytorch, image: a, resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}]}"
    inner = {
        "Job": f"spec: {{template: {{spec: {pod}}}}}",
        "PyTorchJob": f"spec: {{pytorchReplicaSpecs: {{Worker: {{template: {{spec: {pod}}}}}}}}}",
    }
    version = {"Job": "batch/v1", "PyTorchJob": "kubeflow.org/v1"}[kind]
    [finding] = run("a.yaml", f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n{inner[kind]}\n", "K8S006")
    assert why in finding.why


PATCH = """apiVersion: apps/v1
kind: Deployment
metadata: {name: trainer}
spec:
  template:
    spec:
      containers:
      - name: trainer
        IMAGE
        command: [torchrun, --nproc_per_node=8, train.py]
        resources: {requests: {nvidia.com/gpu: 8}}
        volumeMounts: [{name: data, mountPath: /data}]
"""
WRONG = ["warning K8S001 11", "warning K8S001 11", "error K8S001 12"]


def test_what_a_patch_lacks_is_in_the_base(run: Run, tmp_path: Path) -> None:
    assert run("a.yaml", PATCH.replace("        IMAGE\n", ""), "K8S001") == []
    with_image = PATCH.replace("IMAGE", "image: train:1.2")
    assert shown(run("a.yaml", with_image, "K8S001")) == WRONG
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml, ../base]\npatches: [{path: b.yaml}]\n")
    assert shown(run("a.yaml", with_image, "K8S001")) == WRONG
    assert run("b.yaml", with_image, "K8S001") == []
    (tmp_path / "kustomization.yaml").write_text("patchesStrategicMerge:\n- patches/c.yaml\n")
    assert run("patches/c.yaml", with_image, "K8S001") == []


@pytest.mark.parametrize("volumes", ["$VOLUMES", "[$DATA_VOLUME]", "\n  - ${EXTRA}"])
def test_volumes_that_are_filled_in_may_be_any(run: Run, volumes: str) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: train}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
        "    volumeMounts: [{name: data, mountPath: /data}]\n"
    )
    assert run("a.yaml", f"{pod}  volumes: {volumes}\n", "K8S001") == []
    assert shown(run("a.yaml", pod, "K8S001")) == ["error K8S001 8"]


GROUP = {"version": "kubeflow.org/v1", "kind": "PyTorchJob", "command": "torchrun, train.py", "env": "", "claims": ""}


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({}, "warning"),
        ({"env": "{name: NCCL_NET, value: Socket}"}, None),
        ({"env": "{name: FI_PROVIDER, value: tcp}"}, None),
        ({"claims": ", claims: [{name: efa}]"}, None),
        ({"kind": "Deployment", "version": "apps/v1"}, "info"),  # replicas of a server
        ({"kind": "Job", "version": "batch/v1", "command": "wandb, agent, team/sweep"}, "info"),
        ({"kind": "Job", "version": "batch/v1", "command": "torchrun, --nnodes=4, train.py"}, "warning"),
    ],
)
def test_only_ranks_of_one_job_need_the_cards(run: Run, change: dict[str, str], level: str | None) -> None:
    said = GROUP | change
    native = {"Deployment": "  replicas: 4", "Job": "  parallelism: 4\n  completions: 4"}.get(said["kind"])
    lines = [
        f"apiVersion: {said['version']}", f"kind: {said['kind']}", "metadata: {name: llm}", "spec:",
        f"{native}\n  template:" if native else "  pytorchReplicaSpecs:\n   Worker:\n    replicas: 4\n    template:",
        "     spec:", "      hostIPC: true", "      restartPolicy: Never",
        "      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}", "      containers:",
        f"      - {{name: pytorch, image: 'train:1.2', command: [{said['command']}], env: [{said['env']}],",
        f"         resources: {{limits: {{nvidia.com/gpu: 8}}{said['claims']}}}}}", "",
    ]  # fmt: skip
    findings = run("a.yaml", "\n".join(lines), "K8S001")
    assert [finding.level for finding in findings] == ([level] if level else [])


def test_a_privileged_pod_on_the_host_network_has_the_cards(run: Run) -> None:
    text = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n"
        "    Worker:\n      replicas: 4\n      template:\n        spec:\n          hostNetwork: true\n"
        "          hostIPC: true\n"
        "          nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}\n          containers:\n"
        "          - {name: pytorch, image: 'a:1', securityContext: {privileged: PRIVILEGED},\n"
        "             command: [torchrun, a.py], resources: {limits: {nvidia.com/gpu: 8}}}\n"
    )
    assert shown(run("a.yaml", text.replace("PRIVILEGED", "false"), "K8S001")) == ["warning K8S001 15"]
    assert run("a.yaml", text.replace("PRIVILEGED", "true"), "K8S001") == []


SHM = """apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: a  # GPU-accelerated, with vllm and deepspeed
    image: registry/accelerated/deepspeed:1
    command: COMMAND
    resources: {limits: {nvidia.com/gpu: 4}}
    volumeMounts: MOUNTS
  - {name: helper, image: "b:1", command: [bash, -c, "nproc; mpirun --version"]}
  volumes: [{name: dev, hostPath: {path: /dev}}]
"""


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("[bash, /run.sh]", "info"),
        ("[torchrun, --nproc_per_node=1, train.py]", "info"),
        ("[torchrun, --nproc_per_node, '1', train.py]", "info"),
        ("[torchrun, train.py]", "info"),  # one process, whatever the number of GPUs
        ("[bash, -c, 'pip install deepspeed accelerate && bash run.sh']", "info"),
        ("[python, train.py, --device_map, auto]", None),
        ("[python, train.py, --deepspeed, ds.json]", None),
        ("[torchrun, --nproc_per_node=4, train.py]", "warning"),
        ("[torchrun, --nproc-per-node=gpu, train.py]", "warning"),
        ("[deepspeed, --num_gpus=4, train.py]", "warning"),
        ("[accelerate, launch, train.py]", "warning"),
        ("[accelerate, launch, --num_processes, '1', train.py]", "info"),
        ("[python, train.py, --num_workers=8]", "warning"),
        ("[vllm, serve, a, --tensor-parallel-size, '4']", "warning"),
        ("[vllm, serve, a, --tensor-parallel-size, '1']", "info"),
    ],
)
def test_shared_memory_is_asked_for_where_processes_share_it(run: Run, command: str, level: str | None) -> None:
    findings = run("a.yaml", SHM.replace("COMMAND", command).replace("MOUNTS", "[]"), "K8S001")
    assert [f.level for f in findings if "/dev/shm" in f.message] == ([level] if level else [])
    without = SHM.replace("volumeMounts", "env: [{name: NCCL_SHM_DISABLE, value: '1'}]\n    volumeMounts")
    findings = run("a.yaml", without.replace("COMMAND", command).replace("MOUNTS", "[]"), "K8S001")
    assert "warning" not in [f.level for f in findings]
    of_the_host = SHM.replace("COMMAND", command).replace("MOUNTS", "[{name: dev, mountPath: /dev}]")
    assert [f for f in run("a.yaml", of_the_host, "K8S001") if "/dev/shm" in f.message] == []


@pytest.mark.parametrize("value", ["none", "dummy", "HF_TOKEN_HERE", "REDACTED", "{token}", "my-key", "%KEY%", "False"])
def test_a_word_is_no_token(run: Run, value: str) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
    assert shown(run("a.yaml", f'{pod}    env: [{{name: HF_TOKEN, value: "{value}"}}]\n', "K8S001")) == [
        "info K8S001 8"
    ]


JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  MORE
  template:
    spec:
      POLICY
      containers:
      - name: a
        image: b:1
        command: [bash, -c]
        args:
        - |
          SCRIPT
"""


def job(more: str = "backoffLimit: 0", script: str = "train", policy: str = "restartPolicy: Never") -> str:
    return JOB.replace("MORE", more).replace("SCRIPT", script).replace("POLICY", policy)


@pytest.mark.parametrize(
    ("more", "script", "expected"),
    [
        ("backoffLimit: 0", "train --rank $JOB_COMPLETION_INDEX", ["error K8S002 4"]),
        ("backoffLimit: 0", "train --rank ${JOB_COMPLETION_INDEX:-0}", []),
        ("backoffLimit: 0", "python -c \"import os; os.environ.get('JOB_COMPLETION_INDEX', 0)\"", []),
        ("backoffLimit: 0", "# JOB_COMPLETION_INDEX in the indexed variant\n          train", []),
        ("parallelism: 2", "train --rank ${JOB_COMPLETION_INDEX:-0}", ["info K8S002 4"]),
        ("completionMode: Indexed", "train --rank $JOB_COMPLETION_INDEX", []),
    ],
)
def test_a_default_is_a_rank_too(run: Run, more: str, script: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", job(more, script), "K8S002")) == expected


def test_a_variable_that_the_job_sets_itself(run: Run) -> None:
    text = job(script="train --rank $JOB_COMPLETION_INDEX")
    own = text.replace("        command:", '        env: [{name: JOB_COMPLETION_INDEX, value: "0"}]\n        command:')
    assert run("a.yaml", own, "K8S002") == []


@pytest.mark.parametrize(
    ("script", "level"), [("tokenize part-*", "info"), ("torchrun --nnodes=8 train.py", "warning")]
)
def test_fewer_pods_matter_where_they_wait_for_each_other(run: Run, script: str, level: str) -> None:
    findings = run("a.yaml", job("parallelism: 8\n  completions: 5", script), "K8S002")
    assert [finding.level for finding in findings] == [level]


def test_a_job_needs_a_restart_policy(run: Run) -> None:
    assert shown(run("a.yaml", job(policy="hostIPC: true"), "K8S002")) == ["error K8S002 9"]
    assert run("a.yaml", job("restartPolicy: Never", policy="hostIPC: true"), "K8S002") == []  # K8S006's
    assert run("a.yaml", job(policy="hostIPC: true").replace("        image: b:1\n", ""), "K8S002") == []  # a patch
    cron = job(policy="hostIPC: true").replace("batch/v1", "batch.volcano.sh/v1alpha1")
    assert run("a.yaml", cron, "K8S002") == []


@pytest.mark.parametrize(
    ("command", "workers", "said"),
    [
        ("mpirun -np 32 -x A=B --allow-run-as-root /opt/all_reduce_perf -b 8 -n 20 -N 10", 4, 0),
        ("mpirun -np 32 --mca btl ^openib -N 8 python train.py -N 1", 4, 0),
        ("mpirun -np 16 --mca btl ^openib -N 8 python train.py", 4, 1),
        ("mpirun --allow-run-as-root -np 16 -npernode 8 \\\n -x A=B train", 4, 1),
        ("echo mpirun; hostname", 4, 0),
    ],
)
def test_ranks_are_those_of_mpirun(run: Run, command: str, workers: int, said: int) -> None:
    text = (
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n  mpiReplicaSpecs:\n"
        "    Launcher:\n      template:\n        spec:\n          containers:\n          - name: l\n"
        "            image: a:1\n"
        f"            command: [bash, -c, {command!r}]\n    Worker:\n      replicas: {workers}\n      template:\n"
        "        spec: {containers: [{name: w, image: 'a:1', resources: {limits: {nvidia.com/gpu: 8}}}]}\n"
    )
    assert len(run("a.yaml", text.replace("\\\\\\n", "\\ "), "K8S002")) == said


RAY = """apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: a}
spec:
  headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: h, image: "a:1"}]}}}
  workerGroupSpecs:
  - groupName: gpu
    rayStartParams:
      num-gpus: NUMBER
    template:
      spec:
        containers:
        - {name: w, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}
        - {name: triton, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}
"""


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ('"1"', []),
        ('"4"', ["error K8S002 9"]),
        ('"4"  # four actors share it', ["info K8S002 9"]),
        ('"0"', ["info K8S002 9"]),
    ],
)
def test_gpus_of_a_ray_worker_are_those_of_its_first_container(run: Run, number: str, expected: list[str]) -> None:
    assert shown(run("a.yaml", RAY.replace("NUMBER", number), "K8S002")) == expected


QUEUES = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: small}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: f, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: jobs, namespace: team-b}
spec: {clusterQueue: big}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: jobs, namespace: team-a}
spec: {clusterQueue: small}
---
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: PLACE, labels: {kueue.x-k8s.io/queue-name: jobs}MORE}
spec:
  parallelism: 8
  completions: TOTAL
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""


@pytest.mark.parametrize(
    ("place", "total", "more", "said"),
    [
        ("team-a", "8", "", 1),
        ("team-b", "8", "", 0),
        ("team-c", "8", "", 0),
        ("''", "8", "", 0),  # whichever the caller's is
        ("team-a", "4", "", 0),
        ("team-a", "8", ", annotations: {kueue.x-k8s.io/job-min-parallelism: '2'}", 0),
    ],
)
def test_the_queue_of_a_job_is_one_of_its_namespace(run: Run, place: str, total: str, more: str, said: int) -> None:
    text = QUEUES.replace("PLACE", place).replace("TOTAL", total).replace("MORE", more)
    assert len([f for f in run("a.yaml", text, "K8S002") if f.level == "error"]) == said
