"""Fixes for manifests that are followed to the letter: what the API server then takes, and the pods then read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    metadata: {labels: {app: train}}
    spec:
      restartPolicy: Never
      subdomain: train
      containers:
        - name: c
          image: x
          resources: {limits: {nvidia.com/gpu: 1}}
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  selector: {matchLabels: {app: serve}}
  template:
    metadata: {labels: {app: serve}}
    spec:
      containers:
        - name: c
          image: x
          resources: {limits: {nvidia.com/gpu: 1}}
"""


def fixes(run: Run, text: str, *codes: str) -> list[str]:
    return [one.fix for one in run("a.yaml", text, *codes) if one.level != "info"]


OPERATED = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: pytorch
              image: x
              command: [torchrun, train.py]
              env:
                - {name: NODE_RANK, value: "$RANK"}
                - {name: MASTER_ADDR, value: "${MASTER_ADDR}"}
"""


def test_only_variables_above_a_variable_are_replaced_in_it(run: Run) -> None:
    """The kubelet expands variables in their order, and controllers add theirs behind those of the manifest."""
    text = JOB + (
        "          command: [torchrun, '--rdzv_endpoint=${MASTER_ADDR}:$MASTER_PORT', train.py]\n"
        "          env:\n"
        "            - {name: NODE_RANK, value: $JOB_COMPLETION_INDEX}\n"
        "            - {name: PET_RDZV_ENDPOINT, value: '$MASTER_ADDR:29500'}\n"
        "            - {name: MASTER_ADDR, value: train-0.train}\n"
        "            - {name: MASTER_PORT, value: '29500'}\n"
        "            - {name: PET_MASTER_ADDR, value: $MASTER_ADDR}\n"
    )
    assert fixes(run, text, "K8S002") == [
        "write $(MASTER_ADDR) and $(MASTER_PORT)",
        "write valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['batch.kubernetes.io/job-completion-index']"
        '"}} in place of value',
        "write $(MASTER_ADDR), and move it below MASTER_ADDR",
        "write $(MASTER_ADDR)",
    ]
    assert fixes(run, OPERATED, "K8S002") == [
        'remove it, and let a shell set it: [sh, -c, "export NODE_RANK=$RANK; …"]',
        "remove it: no variable is read from itself",
    ]


@pytest.mark.parametrize(
    ("stated", "fix"),
    [
        ("  parallelism: 4\n", "add completionMode: Indexed, and add completions: 4"),
        ("  parallelism: 2\n  completions: 10\n", "add completionMode: Indexed"),  # 10 shards, two at a time
        ("  completions: 4\n  completionMode: NonIndexed\n", "write completionMode: Indexed"),
    ],
)
def test_a_job_keeps_its_completions(run: Run, stated: str, fix: str) -> None:
    text = JOB.replace("  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n", stated)
    text += '          command: [sh, -c, "python a.py --shard $JOB_COMPLETION_INDEX"]\n'
    assert fixes(run, text, "K8S002") == [fix]


@pytest.mark.parametrize(
    ("args", "fix"),
    [
        ('["--lr 0.1"]', "write --lr=0.1, or two elements"),
        ('["--lr 0.1", "--epochs 3"]', "write each option of the list as --name=value, or as two elements"),
    ],
)
def test_all_options_that_are_one_word_are_meant(run: Run, args: str, fix: str) -> None:
    assert fixes(run, JOB + f"          command: [python, a.py]\n          args: {args}\n", "K8S002") == [fix]


SERVICE = """---
apiVersion: v1
kind: Service
metadata: {name: train}
spec:
  type: NodePort
  selector: {app: train}
  ports: [{port: 22}]
"""


@pytest.mark.parametrize(
    ("host", "service", "fix"),
    [
        # Two ports need names, and a Service with ports of the nodes cannot be headless.
        ("train", SERVICE, "add port 29500 to it and a name to each of its ports, or clusterIP: None in place of type: "
         "NodePort"),
        ("train", SERVICE.replace("  type: NodePort\n", "").replace("{port: 22}", "{name: ssh, port: 22}"),
         "add port 29500 to it, or clusterIP: None"),
        ("train-0.train", SERVICE, "write clusterIP: None in place of type: NodePort in the Service"),
    ],
)  # fmt: skip
def test_a_service_that_reaches_the_first_rank(run: Run, host: str, service: str, fix: str) -> None:
    command = (
        f"          command: [torchrun, --rdzv_backend=c10d, --rdzv_endpoint={host}:29500, --nnodes=2, train.py]\n"
    )
    assert fixes(run, JOB + command + service, "K8S004") == [fix]


def test_only_an_indexed_job_gives_its_pods_numbers(run: Run) -> None:
    text = JOB.replace("  completionMode: Indexed\n", "").replace("      subdomain: train\n", "")
    text += "          env: [{name: MASTER_ADDR, value: train-0.train}]\n"
    (fix,) = fixes(run, text, "K8S004")
    assert fix.endswith("; and completionMode: Indexed with completions: 2, which gives pods these names")


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("  backoffLimit: 3\n", "remove it: a Deployment has no such key, only a Job"),
        ("  restartPolicy: Never\n", "remove it: a Deployment always restarts its pods"),
        ("  nodeSelector: {a: b}\n", "it belongs to the pod's spec: move it there"),
        ("  containers: [{name: other, image: y}]\n", "move what it holds to containers of the pod's spec"),
    ],
)
def test_a_key_goes_where_the_kind_has_it(run: Run, key: str, fix: str) -> None:
    text = DEPLOYMENT.replace("  selector:", f"{key}  selector:")
    assert fixes(run, text, "K8S006") == [fix]


@pytest.mark.parametrize(
    ("resources", "fix"),
    [
        ("{requests: {gpu: 1}}", "write nvidia.com/gpu, and the same in limits"),
        ("{limits: {gpu: 1}}", "write nvidia.com/gpu"),
        ("{limits: {gpu: 1, nvidia.com/gpu: 1}}", "remove it: nvidia.com/gpu is there too"),
        ("{requests: {cpus: 4}, limits: {nvidia.com/gpu: 1}}", "write cpu"),
    ],
)
def test_the_full_name_of_a_resource(run: Run, resources: str, fix: str) -> None:
    text = DEPLOYMENT.replace("{limits: {nvidia.com/gpu: 1}}", resources)
    assert fixes(run, text, "K8S006") == [fix]


def test_entries_of_a_service_and_of_a_container_differ(run: Run) -> None:
    service = SERVICE.replace("[{port: 22}]", "[22]").replace("name: train}", "name: my_svc.v1}")
    assert fixes(run, JOB + service, "K8S006") == [
        "write my-svc-v1 here and wherever the object is named", "write {port: 22}",
    ]  # fmt: skip


def test_variables_of_a_map_are_texts(run: Run) -> None:
    assert fixes(run, JOB + "          env: {A: 1}\n", "K8S006") == [
        'write each variable as an element: `- name: NAME`, and `value: "…"` below name'
    ]


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("      volumes: [{nmae: a, emptyDir: {}}]\n", "write name"),
        ("          value: x\n          env: [{name: A, value: b}]\n", "it belongs to an entry of env: move it there"),
        (
            "          containerPort: 80\n          ports: [{name: a}]\n",
            "it belongs to an entry of ports: move it there",
        ),
        ("      securityContext: {privileged: true}\n", "it belongs to the container's securityContext: move it there"),
        ("          nvidia.com/gpu: 1\n", "write nvidia.com/gpu below resources.limits"),
        ("          imagePullPolicy: [Always]\n", "write Always, not a list"),
    ],
)
def test_a_key_goes_to_the_neighbour_that_has_it(run: Run, key: str, fix: str) -> None:
    assert fixes(run, DEPLOYMENT + key, "K8S006") == [fix]


def test_a_volume_in_memory_that_is_there_is_mounted(run: Run) -> None:
    text = JOB.replace("gpu: 1", "gpu: 8") + "          command: [torchrun, --nproc_per_node=8, train.py]\n"
    text += "      volumes: [{name: dshm, emptyDir: {medium: Memory}}]\n"
    assert fixes(run, text, "K8S001") == ["mount the volume dshm at /dev/shm"]


def test_parameters_of_ray_and_what_stands_among_them(run: Run) -> None:
    text = (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n    rayStartParams:\n"
        "      resources: {a: 1}\n      template: {spec: {containers: [{name: h, image: x}]}}\n"
    )
    assert fixes(run, text, "K8S006") == [
        "write it as text: ray start takes JSON there",
        "move it beside rayStartParams",
    ]


def test_a_misspelt_name_of_a_volume_is_one_mistake(run: Run) -> None:
    text = DEPLOYMENT + "          volumeMounts: [{name: d, mountPath: /d}]\n      volumes: [{nmae: d, emptyDir: {}}]\n"
    assert fixes(run, text, "K8S006", "K8S001") == ["write name"]


def test_misspelt_instances_of_parallelcluster_are_not_missing_too(run: Run) -> None:
    """With both keys ParallelCluster refuses the compute resource."""
    text = (
        "Region: us-east-2\nImage: {Os: alinux2023}\nHeadNode:\n  InstanceType: c5.large\n"
        "  Networking: {SubnetId: subnet-0a1b2c3d4e5f67890}\nScheduling:\n  Scheduler: slurm\n  SlurmQueues:\n"
        "    - Name: gpu\n      Networking: {SubnetIds: [subnet-0a1b2c3d4e5f67890]}\n      ComputeResources:\n"
        "        - {Name: g5, Instanecs: [{InstanceType: g5.xlarge}], MaxCount: 2}\n"
    )
    assert fixes(run, text, "CFG005") == ["did you mean 'Instances'?"]
