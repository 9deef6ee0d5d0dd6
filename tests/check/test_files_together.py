"""Mistakes that two files make together, each of which is right by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import rows

from trainwright.check.engine import check

INTERFACE = """resource "aws_network_interface" "card" {{
  subnet_id       = "subnet-1"
  interface_type  = "{kind}"
  security_groups = [{groups}]
}}
"""
GROUP = """resource "aws_security_group" "fabric" {{
  description = "EFA"
  ingress {{
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }}
  egress {{
    from_port = 0
    to_port   = {port}
    protocol  = "{protocol}"
    self      = true
  }}
}}
"""
OWN = "aws_security_group.fabric.id"


def found(folder: Path, files: dict[str, str], code: str) -> list[str]:
    """Level, file and line of what the files of a folder show."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    reported = [row for row in rows(folder) if row["code"] == code]
    return [f"{row['level']} {Path(row['file']).name} {row['line']}" for row in reported if row["level"] != "info"]


def test_the_group_of_an_efa_interface_in_another_file(tmp_path: Path) -> None:
    files = {
        "group.tf": GROUP.format(port=65535, protocol="udp"),
        "hosts.tf": INTERFACE.format(kind="efa", groups=OWN),
    }

    assert found(tmp_path, files, "NET003") == ["error group.tf 9"]


@pytest.mark.parametrize(
    ("group", "kind", "groups", "more"),
    [
        (GROUP.format(port=0, protocol="-1"), "efa", OWN, ""),
        (GROUP.format(port=65535, protocol="tcp"), "interface", OWN, ""),
        (GROUP.format(port=65535, protocol="tcp"), "efa", f"{OWN}, var.shared", ""),
        (
            GROUP.format(port=65535, protocol="tcp"), "efa", OWN,
            'resource "aws_network_interface_sg_attachment" "a" {\n  security_group_id = "sg-1"\n}\n',
        ),
        (
            GROUP.format(port=65535, protocol="tcp"), "efa", OWN,
            f'resource "aws_security_group_rule" "all" {{\n  type = "egress"\n  protocol = "-1"\n  self = true\n'
            f"  security_group_id = {OWN}\n}}\n",
        ),
    ],
)  # fmt: skip
def test_groups_that_reach_themselves_or_carry_no_efa(
    tmp_path: Path, group: str, kind: str, groups: str, more: str
) -> None:
    files = {"group.tf": group, "hosts.tf": INTERFACE.format(kind=kind, groups=groups), "more.tf": more}

    assert found(tmp_path, files, "NET003") == []


def test_the_group_of_an_efa_interface_of_a_template(tmp_path: Path) -> None:
    template = """AWSTemplateFormatVersion: "2010-09-09"
Resources:
  Fabric:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: nodes, VpcId: vpc-1}
  In:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: !Ref Fabric, IpProtocol: "-1", SourceSecurityGroupId: !Ref Fabric}
  Card:
    Type: AWS::EC2::NetworkInterface
    Properties: {SubnetId: subnet-1, InterfaceType: efa, GroupSet: [!Ref Fabric]}
"""

    assert found(tmp_path / "a", {"stack.yaml": template}, "NET003") == ["error stack.yaml 3"]
    assert found(tmp_path / "b", {"stack.yaml": template.replace(": efa", ": interface")}, "NET003") == []


BUILD = """from setuptools import setup
from torch.utils import cpp_extension

kernels = cpp_extension.CUDAExtension("scan", ["scan.cpp", "scan_kernel.cu"])
setup(name="scan", ext_modules=[kernels], cmdclass={"build_ext": cpp_extension.BuildExtension})
"""
IMAGE = """FROM nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && pip3 install torch==2.6.0
COPY kernels /src/kernels
RUN pip3 install --no-build-isolation -v /src/kernels
"""


def test_kernels_that_an_image_without_compiler_builds(tmp_path: Path) -> None:
    for number, (image, line) in enumerate(
        [
            (IMAGE, 4),
            (IMAGE.replace("RUN pip3 install --no-b", "WORKDIR /src/kernels\nRUN python3 setup.py develop #"), 5),
            (IMAGE.replace("kernels /src/kernels", ". /src/"), 4),
        ]
    ):
        files = {"kernels/setup.py": BUILD, "Dockerfile": image}
        assert found(tmp_path / str(number), files, "IMG007") == [f"error Dockerfile {line}"]


@pytest.mark.parametrize(
    ("image", "build"),
    [
        (IMAGE.replace("-runtime-", "-devel-"), BUILD),
        (IMAGE.replace("python3-pip", "python3-pip cuda-nvcc-12-6"), BUILD),
        (IMAGE.replace("RUN pip3 install --no", "ENV CUDA_HOME=/opt/cuda\nRUN pip3 install --no"), BUILD),
        (IMAGE.replace("-v /src/kernels", "-v /src/kernels || true"), BUILD),
        (IMAGE.replace("COPY kernels", "COPY --from=other kernels"), BUILD),
        (IMAGE.replace("-v /src/kernels", "-v /src"), BUILD),
        (IMAGE, BUILD.replace("scan_kernel.cu", "scan_more.cpp").replace("CUDA", "Cpp")),
        (IMAGE, BUILD.replace("=[kernels]", "=[kernels] if torch.cuda.is_available() else []")),
        (IMAGE, BUILD.replace("kernels =", "if CUDA_HOME is not None:\n    kernels =")),
        (IMAGE, BUILD.replace("kernels =", "def kernels(): return")),
    ],
)
def test_kernels_that_are_built_elsewhere_or_by_choice(tmp_path: Path, image: str, build: str) -> None:
    assert found(tmp_path, {"kernels/setup.py": build, "Dockerfile": image}, "IMG007") == []


LISTED = """FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
WORKDIR /opt/train
COPY deps/train.txt /tmp/deps.txt
RUN pip3 install --no-cache-dir -r /tmp/deps.txt
"""
PINS = "--extra-index-url https://download.pytorch.org/whl/cu124\ntorch == 2.5.0  # the cluster's\n{}\n"


@pytest.mark.parametrize(
    "image",
    [
        LISTED,
        LISTED.replace("deps/train.txt /tmp/deps.txt", "deps ./").replace("/tmp/deps.txt", "train.txt"),
        LISTED.replace("deps/train.txt /tmp/deps.txt", "deps/*.txt /tmp/").replace("/tmp/deps.txt", "/tmp/train.txt"),
        LISTED.replace("deps/train.txt /tmp/deps.txt", ". .").replace("-r /tmp/deps.txt", "-r deps/train.txt timm"),
    ],
)
def test_a_copied_list_that_pip_refuses(tmp_path: Path, image: str) -> None:
    files = {"deps/train.txt": PINS.format("torchaudio==2.4.1"), "Dockerfile": image}

    assert found(tmp_path, files, "IMG006") == ["error Dockerfile 4"]


@pytest.mark.parametrize(
    ("image", "pin"),
    [
        (LISTED, "torchaudio==2.5.0"),
        (LISTED, 'torchaudio==2.4.1; sys_platform == "darwin"'),
        (LISTED, "# torchaudio==2.4.1"),
        (LISTED, "torchaudio>=2.4.1"),
        (LISTED.replace("RUN", "RUN sed -i s/2.4.1/2.5.0/ /tmp/deps.txt\nRUN"), "torchaudio==2.4.1"),
        (LISTED.replace("RUN", "RUN grep -v audio /tmp/all.txt > /tmp/deps.txt\nRUN"), "torchaudio==2.4.1"),
        (LISTED.replace("COPY", "COPY --from=lists"), "torchaudio==2.4.1"),
        (LISTED.replace("-r /tmp/deps.txt", "-r /opt/other.txt"), "torchaudio==2.4.1"),
        (LISTED.replace("\nRUN", "\nFROM python:3.11\nRUN"), "torchaudio==2.4.1"),
    ],
)
def test_copied_lists_that_pip_takes(tmp_path: Path, image: str, pin: str) -> None:
    assert found(tmp_path, {"deps/train.txt": PINS.format(pin), "Dockerfile": image}, "IMG006") == []


def test_the_fix_names_the_list(tmp_path: Path) -> None:
    (tmp_path / "deps").mkdir()
    (tmp_path / "deps" / "train.txt").write_text(PINS.format("torchvision==0.19.1"))
    (tmp_path / "Dockerfile").write_text(LISTED)

    (row,) = [row for row in rows(tmp_path) if row["code"] == "IMG006"]

    assert row["fix"] == "write torchvision==0.20.0 in deps/train.txt"


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: trn}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: nodes}
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [p5en.48xlarge]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [reserved]}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1h}
"""
CLASS = """apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: nodes}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@v20250403}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
"""


def test_reserved_capacity_that_the_class_of_another_file_does_not_select(tmp_path: Path) -> None:
    selected = CLASS + "  capacityReservationSelectorTerms: [{tags: {team: llm}}]\n"
    both = POOL.replace("[reserved]", "[reserved, on-demand]")
    patched = {
        "kustomization.yaml": "resources: [pool.yml, class.yml]\n"
        "patches:\n- {path: c.yml, target: {kind: EC2NodeClass}}\n"
    }

    assert found(tmp_path / "a", {"pool.yml": POOL, "class.yml": CLASS}, "K8S003") == ["warning pool.yml 10"]
    assert found(tmp_path / "b", {"pool.yml": POOL, "class.yml": selected}, "K8S003") == []
    assert found(tmp_path / "c", {"pool.yml": both, "class.yml": CLASS}, "K8S003") == []
    assert found(tmp_path / "d", {"pool.yml": POOL, "class.yml": CLASS, **patched}, "K8S003") == []
    assert (
        found(tmp_path / "e", {"pool.yml": POOL, "class.yml": CLASS.replace("name: nodes", "name: x")}, "K8S003") == []
    )


QUEUED = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: sft
  namespace: {place}
  labels: {{kueue.x-k8s.io/queue-name: gpus}}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        template:
          spec:
            restartPolicy: Never
            containers: [{{name: c, image: "a/b:1", resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]
"""
QUEUE = """apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: gpus, namespace: {place}}}
spec: {{clusterQueue: all}}
"""
ALL = """---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: all}
spec: {namespaceSelector: {}}
"""


def test_a_queue_of_another_namespace(tmp_path: Path) -> None:
    job, queue = QUEUED.format(place="nlp"), QUEUE.format(place="speech") + ALL
    whole = {"kustomization.yaml": "namespace: nlp\nresources: [job.yaml, queue.yaml]\n"}

    assert found(tmp_path / "a", {"job.yaml": job, "queue.yaml": queue}, "K8S002") == ["warning job.yaml 5"]
    assert found(tmp_path / "b", {"job.yaml": f"{queue}---\n{job}"}, "K8S002") == ["warning job.yaml 15"]
    right = [
        {"job.yaml": job, "queue.yaml": QUEUE.format(place="nlp") + ALL},
        {"job.yaml": job, "queue.yaml": QUEUE.format(place="speech")},  # one of many that the cluster has
        {"job.yaml": job, "queue.yaml": queue, "other.yaml": QUEUE.format(place="nlp")},
        {"job.yaml": job, "queue.yaml": queue.replace(", namespace: speech", "")},
        {"job.yaml": job.replace("  namespace: nlp\n", ""), "queue.yaml": queue},
        {"job.yaml": job, "queue.yaml": queue.replace("name: gpus", "name: night")},
        {"job.yaml": job, "queue.yaml": queue, **whole},
    ]
    for number, files in enumerate(right):
        assert found(tmp_path / f"r{number}", files, "K8S002") == []


RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: {kind}
metadata: {{name: gpu-nodes}}
spec:
  mlPolicy: {{numNodes: 1}}
  template: {{spec: {{replicatedJobs: []}}}}
"""
TRAIN_JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: t}}
spec:
  runtimeRef: {reference}
  trainer: {{numNodes: 2}}
"""


@pytest.mark.parametrize(
    ("reference", "kind", "wrong"),
    [
        ("{name: gpu-nodes}", "TrainingRuntime", True),
        ("{name: gpu-nodes, kind: ClusterTrainingRuntime}", "TrainingRuntime", True),
        ("{name: gpu-nodes, kind: TrainingRuntime}", "ClusterTrainingRuntime", True),
        ("{name: gpu-nodes}", "ClusterTrainingRuntime", False),
        ("{name: gpu-nodes, kind: TrainingRuntime}", "TrainingRuntime", False),
        ("{name: torch-distributed}", "TrainingRuntime", False),
        ("{name: gpu-nodes, kind: Other}", "TrainingRuntime", False),
    ],
)
def test_the_kind_of_a_runtime(tmp_path: Path, reference: str, kind: str, wrong: bool) -> None:
    files = {"job.yaml": TRAIN_JOB.format(reference=reference), "runtime.yaml": RUNTIME.format(kind=kind)}

    assert found(tmp_path, files, "K8S002") == (["warning job.yaml 5"] if wrong else [])


EKSCTL = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {{name: c, region: eu-west-1}}
{zones}
nodeGroups:
- {{name: cpu, instanceType: m5.large}}
- {{name: gpu, instanceType: g6.12xlarge, {place}}}
"""


@pytest.mark.parametrize(
    ("zones", "place", "wrong"),
    [
        ("availabilityZones: [eu-west-1a, eu-west-1b]", "availabilityZones: [eu-west-1a, eu-west-1c]", True),
        ("availabilityZones: [eu-west-1a, eu-west-1b]", "availabilityZones: [eu-west-1b]", False),
        ("availabilityZones: [eu-west-1a, eu-west-1b]", "subnets: [subnet-1], availabilityZones: [eu-west-1c]", False),
        ("iam: {withOIDC: true}", "availabilityZones: [eu-west-1c]", False),
    ],
)
def test_a_node_group_outside_the_zones_of_its_cluster(tmp_path: Path, zones: str, place: str, wrong: bool) -> None:
    files = {"cluster.yaml": EKSCTL.format(zones=zones, place=place)}

    assert found(tmp_path, files, "CFG004") == (["error cluster.yaml 7"] if wrong else [])


SUBNETS = """resource "aws_subnet" "training" {
  vpc_id            = "vpc-1"
  cidr_block        = "10.0.0.0/24"
  availability_zone = var.zone
}
"""
PROVIDER = 'provider "aws" {\n  region = "eu-north-1"\n}\nvariable "zone" {}\n'


@pytest.mark.parametrize(
    ("subnets", "provider", "zone", "wrong"),
    [
        (SUBNETS, PROVIDER, "eu-west-1a", True),
        (SUBNETS.replace("var.zone", '"eun1-az1"').replace("zone ", "zone_id "), PROVIDER, "x", False),
        (SUBNETS.replace("var.zone", '"use1-az1"').replace("zone ", "zone_id "), PROVIDER, "x", True),
        (SUBNETS, PROVIDER, "eu-north-1b", False),
        (SUBNETS, PROVIDER + 'provider "aws" {\n  alias = "w"\n  region = "eu-west-1"\n}\n', "eu-west-1a", False),
        (SUBNETS.replace("vpc_id", "provider = aws.west\n  vpc_id"), PROVIDER, "eu-west-1a", False),
        (SUBNETS, PROVIDER.replace('"eu-north-1"', "var.region"), "eu-west-1a", False),
    ],
)
def test_a_zone_of_another_region(tmp_path: Path, subnets: str, provider: str, zone: str, wrong: bool) -> None:
    files = {"subnets.tf": subnets, "main.tf": provider, "terraform.tfvars": f'zone = "{zone}"\n'}

    assert [one.split()[:2] for one in found(tmp_path, files, "CFG004")] == ([["error", "subnets.tf"]] if wrong else [])


BUILT = """apiVersion: batch/v1
kind: Job
metadata: {name: fold}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: ghcr.io/protlab/folder:{tag}
          command: [torchrun, --nproc-per-node=2, /srv/fold.py]
          volumeMounts: [{name: out, mountPath: {mount}}]
      volumes: [{name: out, persistentVolumeClaim: {claimName: out}}]
"""
BUILDS = "#!/bin/bash\nHUB={hub}\nTAG=0.9\ndocker build -t $HUB/folder:$TAG .\ndocker push $HUB/folder:$TAG\n"


@pytest.mark.parametrize(
    ("tag", "mount", "hub", "message"),
    [
        ("0.8", "/out", "ghcr.io/protlab", "the tag is 0.8, but push.sh, line 5, makes folder:0.9"),
        ("0.9", "/srv", "ghcr.io/protlab", "/srv hides /srv/fold.py, which Dockerfile copies into the image"),
        ("0.9", "/out", "ghcr.io/protlab", ""),
        ("0.8", "/srv", "ghcr.io/another", ""),  # an image of somebody else, with the same name
        ("0.8", "/out", "${1:-ghcr.io/protlab}", ""),
    ],
)
def test_an_image_of_a_public_registry_that_a_script_above_builds(
    tmp_path: Path, tag: str, mount: str, hub: str, message: str
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/job.yaml").write_text(BUILT.replace("{tag}", tag).replace("{mount}", mount))
    (tmp_path / "push.sh").write_text(BUILDS.replace("{hub}", hub))
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\nCOPY fold.py /srv/\n")
    findings = [one for one in check([str(tmp_path)]).findings if one.code == "JOB018"]
    assert [(one.level, one.message) for one in findings] == ([("info", message)] if message else [])


REGISTRY = "region=${AWS_REGION:-eu-west-1}\nhub=482193057716.dkr.ecr.$region.amazonaws.com\n"


@pytest.mark.parametrize(
    ("script", "made"),
    [
        (REGISTRY + 'docker build -t "$hub/encoder:1.5.0" .', "1.5.0"),
        (REGISTRY + 'TAG=1.5.0\ndocker build -t "$hub/encoder:${TAG}" .', "1.5.0"),
        (REGISTRY + "IMAGE=$hub/encoder:1.5.0\ndocker build --tag=$IMAGE .\ndocker push $IMAGE", "1.5.0"),
        (REGISTRY + "docker tag encoder:local $hub/encoder:1.5.0", "1.5.0"),
        (REGISTRY + "docker build -t $hub/encoder:1.4.0 .", ""),
        (REGISTRY + "docker build -t $hub/encoder:1.5.0 -t $hub/encoder:1.4.0 .", ""),
        (REGISTRY + "docker build -t $hub/encoder:${TAG:-1.5.0} .", ""),
        (REGISTRY + "TAG=${1:-1.5.0}\ndocker build -t $hub/encoder:$TAG .", ""),
        (REGISTRY + "IMAGE=$hub/encoder:${1:-1.5.0}\ndocker push $IMAGE", ""),
        (REGISTRY + "TAG=$(git rev-parse --short HEAD)\ndocker push $hub/encoder:$TAG", ""),
        (REGISTRY + 'TAG=1.5.0\nif [ -n "$1" ]; then TAG=$1; fi\ndocker push $hub/encoder:$TAG', ""),
        (REGISTRY + "IMAGE=${IMAGE:-$hub/encoder:1.5.0}\ndocker push $IMAGE", ""),
        (REGISTRY + "docker build -t $hub/server:1.5.0 .", ""),
        (REGISTRY + "for TAG in 1.4.0 1.5.0; do docker push $hub/encoder:$TAG; done", ""),
    ],
)
def test_a_tag_of_a_registry_that_has_a_default(tmp_path: Path, script: str, made: str) -> None:
    """`region=${AWS_REGION:-eu-west-1}` leaves the registry open, and not the tag behind it."""
    job = BUILT.replace("ghcr.io/protlab/folder:{tag}", "482193057716.dkr.ecr.eu-west-1.amazonaws.com/encoder:1.4.0")
    files = {"k8s/job.yaml": job.replace("{mount}", "/out"), "build.sh": f"#!/bin/bash\n{script}\n"}
    found(tmp_path, files, "JOB018")
    messages = [row["message"] for row in rows(tmp_path) if row["code"] == "JOB018"]
    assert [message.rpartition(":")[2] for message in messages] == [made] * bool(made)
