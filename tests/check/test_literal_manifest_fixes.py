"""Fixes for manifests that are followed to the letter: they are for what the manifest has, and where the corrected text
stands beside it, `check` has nothing more to say. No test asks an API server."""

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
GPU = "{limits: {nvidia.com/gpu: 1}}"


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


def test_variables_that_are_replaced_or_set_by_a_shell(run: Run) -> None:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    text = JOB + (
        "          command: [torchrun, '--rdzv_endpoint=$(MASTER_ADDR):$(MASTER_PORT)', train.py]\n"
        "          env:\n"
        f'            - {{name: NODE_RANK, valueFrom: {{fieldRef: {{fieldPath: "{index}"}}}}}}\n'
        "            - {name: MASTER_ADDR, value: train-0.train}\n"
        "            - {name: PET_RDZV_ENDPOINT, value: '$(MASTER_ADDR):29500'}\n"
        "            - {name: MASTER_PORT, value: '29500'}\n"
        "            - {name: PET_MASTER_ADDR, value: $(MASTER_ADDR)}\n"
    )
    assert fixes(run, text, "K8S002") == []
    shell = '[sh, -c, "export NODE_RANK=$RANK; torchrun train.py"]'
    operated = OPERATED.partition("              env:")[0].replace("[torchrun, train.py]", shell)
    assert fixes(run, operated, "K8S002") == []


@pytest.mark.parametrize(
    ("stated", "fix", "fixed"),
    [
        (
            "  parallelism: 4\n",
            "add completionMode: Indexed, and add completions: 4",
            "  parallelism: 4\n  completionMode: Indexed\n  completions: 4\n",
        ),
        # 10 shards, two at a time
        (
            "  parallelism: 2\n  completions: 10\n",
            "add completionMode: Indexed",
            "  parallelism: 2\n  completions: 10\n  completionMode: Indexed\n",
        ),
        (
            "  completions: 4\n  completionMode: NonIndexed\n",
            "write completionMode: Indexed",
            "  completions: 4\n  completionMode: Indexed\n",
        ),
    ],
)
def test_a_job_keeps_its_completions(run: Run, stated: str, fix: str, fixed: str) -> None:
    text = JOB + '          command: [sh, -c, "python a.py --shard $JOB_COMPLETION_INDEX"]\n'
    indexed = "  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n"
    assert fixes(run, text.replace(indexed, stated), "K8S002") == [fix]
    assert fixes(run, text.replace(indexed, fixed), "K8S002") == []


@pytest.mark.parametrize(
    ("args", "fix", "fixed"),
    [
        ('["--lr 0.1"]', "write --lr=0.1, or two elements", '["--lr=0.1"]'),
        (
            '["--lr 0.1", "--epochs 3"]',
            "write each option of the list as --name=value, or as two elements",
            '["--lr=0.1", "--epochs", "3"]',
        ),
    ],
)
def test_all_options_that_are_one_word_are_meant(run: Run, args: str, fix: str, fixed: str) -> None:
    text = JOB + "          command: [python, a.py]\n          args: {}\n"
    assert fixes(run, text.replace("{}", args), "K8S002") == [fix]
    assert fixes(run, text.replace("{}", fixed), "K8S002") == []


SERVICE = """---
apiVersion: v1
kind: Service
metadata: {name: train}
spec:
  type: NodePort
  selector: {app: train}
  ports: [{port: 22}]
"""


SSH = "[{port: 22}]"
BOTH = "[{name: ssh, port: 22}, {name: rendezvous, port: 29500}]"


@pytest.mark.parametrize(
    ("host", "service", "fix", "fixed"),
    [
        # Two ports need names, and a Service with ports of the nodes cannot be headless.
        (
            "train",
            SERVICE,
            "add port 29500 to it and a name to each of its ports, or clusterIP: None in place of type: NodePort",
            SERVICE.replace(SSH, BOTH),
        ),
        (
            "train",
            SERVICE.replace("  type: NodePort\n", "").replace("{port", "{name: ssh, port"),
            "add port 29500 to it, or clusterIP: None",
            SERVICE.replace("  type: NodePort\n", "").replace(SSH, BOTH),
        ),
        (
            "train-0.train",
            SERVICE,
            "write clusterIP: None in place of type: NodePort in the Service",
            SERVICE.replace("type: NodePort", "clusterIP: None"),
        ),
    ],
)
def test_a_service_that_reaches_the_first_rank(run: Run, host: str, service: str, fix: str, fixed: str) -> None:
    command = (
        f"          command: [torchrun, --rdzv_backend=c10d, --rdzv_endpoint={host}:29500, --nnodes=2, train.py]\n"
    )
    assert fixes(run, JOB + command + service, "K8S004") == [fix]
    assert fixes(run, JOB + command + fixed, "K8S004") == []


def test_only_an_indexed_job_gives_its_pods_numbers(run: Run) -> None:
    text = JOB.replace("  completionMode: Indexed\n", "").replace("      subdomain: train\n", "")
    text += "          env: [{name: MASTER_ADDR, value: train-0.train}]\n"
    (fix,) = fixes(run, text, "K8S004")
    assert fix.endswith("; and completionMode: Indexed with completions: 2, which gives pods these names")
    headless = SERVICE.replace("type: NodePort", "clusterIP: None")
    fixed = JOB + "          env: [{name: MASTER_ADDR, value: train-0.train}]\n" + headless
    assert fixes(run, fixed, "K8S004") == []


@pytest.mark.parametrize(
    ("key", "fix", "below"),
    [
        ("  backoffLimit: 3\n", "remove it: a Deployment has no such key, only a Job", ""),
        ("  restartPolicy: Never\n", "remove it: a Deployment always restarts its pods", ""),
        ("  nodeSelector: {a: b}\n", "it belongs to the pod's spec: move it there", "      nodeSelector: {a: b}\n"),
        (
            "  containers: [{name: other, image: y}]\n",
            "move what it holds to containers of the pod's spec",
            "        - {name: other, image: y}\n",
        ),
    ],
)
def test_a_key_goes_where_the_kind_has_it(run: Run, key: str, fix: str, below: str) -> None:
    text = DEPLOYMENT.replace("  selector:", f"{key}  selector:")
    assert fixes(run, text, "K8S006") == [fix]
    assert fixes(run, DEPLOYMENT + below, "K8S006") == []


@pytest.mark.parametrize(
    ("resources", "fix", "fixed"),
    [
        (
            "{requests: {gpu: 1}}",
            "write nvidia.com/gpu, and the same in limits",
            "{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}",
        ),
        ("{limits: {gpu: 1}}", "write nvidia.com/gpu", GPU),
        ("{limits: {gpu: 1, nvidia.com/gpu: 1}}", "remove it: nvidia.com/gpu is there too", GPU),
        (
            "{requests: {cpus: 4}, limits: {nvidia.com/gpu: 1}}",
            "write cpu",
            "{requests: {cpu: 4}, limits: {nvidia.com/gpu: 1}}",
        ),
    ],
)
def test_the_full_name_of_a_resource(run: Run, resources: str, fix: str, fixed: str) -> None:
    assert fixes(run, DEPLOYMENT.replace(GPU, resources), "K8S006") == [fix]
    assert fixes(run, DEPLOYMENT.replace(GPU, fixed), "K8S006") == []


def test_entries_of_a_service_and_of_a_container_differ(run: Run) -> None:
    service = SERVICE.replace("[{port: 22}]", "[22]").replace("name: train}", "name: my_svc.v1}")
    assert fixes(run, JOB + service, "K8S006") == [
        "write my-svc-v1 here and wherever the object is named", "write {port: 22}",
    ]  # fmt: skip
    assert fixes(run, JOB + SERVICE.replace("name: train}", "name: my-svc-v1}"), "K8S006") == []


def test_variables_of_a_map_are_texts(run: Run) -> None:
    assert fixes(run, JOB + "          env: {A: 1}\n", "K8S006") == [
        'write each variable as an element: `- name: NAME`, and `value: "…"` below name'
    ]
    variables = '          env:\n            - name: A\n              value: "1"\n'
    assert fixes(run, JOB + variables, "K8S006") == []


IN_ENV, IN_PORTS = "it belongs to an entry of env: move it there", "it belongs to an entry of ports: move it there"


@pytest.mark.parametrize(
    ("key", "fix", "fixed"),
    [
        (
            "      volumes: [{nmae: a, emptyDir: {}}]\n",
            "write name",
            DEPLOYMENT + "      volumes: [{name: a, emptyDir: {}}]\n",
        ),
        (
            "          value: x\n          env: [{name: A, value: b}]\n",
            IN_ENV,
            DEPLOYMENT + "          env: [{name: A, value: x}]\n",
        ),
        (
            "          containerPort: 80\n          ports: [{name: a}]\n",
            IN_PORTS,
            DEPLOYMENT + "          ports: [{name: a, containerPort: 80}]\n",
        ),
        (
            "      securityContext: {privileged: true}\n",
            "it belongs to the container's securityContext: move it there",
            DEPLOYMENT + "          securityContext: {privileged: true}\n",
        ),
        (
            "          nvidia.com/gpu: 1\n",
            "write nvidia.com/gpu below resources.limits",
            DEPLOYMENT,
        ),
        (
            "          imagePullPolicy: [Always]\n",
            "write Always, not a list",
            DEPLOYMENT + "          imagePullPolicy: Always\n",
        ),
    ],
)
def test_a_key_goes_to_the_neighbour_that_has_it(run: Run, key: str, fix: str, fixed: str) -> None:
    assert fixes(run, DEPLOYMENT + key, "K8S006") == [fix]
    assert fixes(run, fixed, "K8S006") == []


def test_a_volume_in_memory_that_is_there_is_mounted(run: Run) -> None:
    text = JOB.replace("gpu: 1", "gpu: 8") + "          command: [torchrun, --nproc_per_node=8, train.py]\n"
    text += "      volumes: [{name: dshm, emptyDir: {medium: Memory}}]\n"
    assert fixes(run, text, "K8S001") == ["mount the volume dshm at /dev/shm"]
    mounted = text.replace(
        "      volumes:", "          volumeMounts: [{name: dshm, mountPath: /dev/shm}]\n      volumes:"
    )
    assert fixes(run, mounted, "K8S001") == []


def test_parameters_of_ray_and_what_stands_among_them(run: Run) -> None:
    text = (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n    rayStartParams:\n"
        "      resources: {a: 1}\n      template: {spec: {containers: [{name: h, image: x}]}}\n"
    )
    assert fixes(run, text, "K8S006") == [
        "write it as text: ray start takes JSON there",
        "move it beside rayStartParams",
    ]
    moved = text.replace("      template", "    template").replace("{a: 1}", r"""'"{\"a\": 1}"'""")
    assert fixes(run, moved, "K8S006") == []


def test_a_misspelt_name_of_a_volume_is_one_mistake(run: Run) -> None:
    text = DEPLOYMENT + "          volumeMounts: [{name: d, mountPath: /d}]\n      volumes: [{nmae: d, emptyDir: {}}]\n"
    assert fixes(run, text, "K8S006", "K8S001") == ["write name"]
    assert fixes(run, text.replace("nmae", "name"), "K8S006", "K8S001") == []


def test_misspelt_instances_of_parallelcluster_are_not_missing_too(run: Run) -> None:
    """With both keys ParallelCluster refuses the compute resource."""
    text = (
        "Region: us-east-2\nImage: {Os: alinux2023}\nHeadNode:\n  InstanceType: c5.large\n"
        "  Networking: {SubnetId: subnet-0a1b2c3d4e5f67890}\nScheduling:\n  Scheduler: slurm\n  SlurmQueues:\n"
        "    - Name: gpu\n      Networking: {SubnetIds: [subnet-0a1b2c3d4e5f67890]}\n      ComputeResources:\n"
        "        - {Name: g5, Instanecs: [{InstanceType: g5.xlarge}], MaxCount: 2}\n"
    )
    assert fixes(run, text, "CFG005") == ["did you mean 'Instances'?"]
    assert fixes(run, text.replace("Instanecs", "Instances"), "CFG005") == []
