"""Fixes of cluster files and manifests, followed to the letter: each names everything that is needed, and its reason
holds where it is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
SCHEMAS = Path(__file__).parents[1] / "judges/schemas"

OLD = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: train, region: us-east-2, version: "1.29"}
"""


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", ""),
        ("managedNodeGroups:\n- {name: a, instanceType: m5.large, amiFamily: AmazonLinux2023}\n", ""),
        (
            "managedNodeGroups:\n- {name: a, instanceType: m5.large, amiFamily: AmazonLinux2}\n",
            "AmazonLinux2023 instead of AmazonLinux2",
        ),
        (
            "nodeGroups:\n- {name: a, instanceType: m5.large, ami: ami-0123456789abcdef0, amiFamily: AmazonLinux2}\n",
            "images (ami) of that version, AmazonLinux2023 instead of AmazonLinux2",
        ),
        ("addons:\n- {name: vpc-cni, version: v1.18.1-eksbuild.3}\n", "versions of the addons that it takes"),
        ("addons:\n- name: vpc-cni\n", ""),
    ],
)
def test_what_is_made_for_the_old_version_goes_with_it(run: Run, rest: str, said: str) -> None:
    (finding,) = run("cluster.yaml", OLD + rest, "EKS001")
    versions, _, more = finding.fix.partition("; ")[0].partition(", with ")
    assert versions.startswith("use 1.")
    assert more == said
    assert finding.fix.endswith("one minor version at a time")


def test_images_of_a_module_with_scripts_of_its_own(run: Run) -> None:
    text = """module "eks" {
  source          = "terraform-aws-modules/eks/aws"
  version         = "~> 20.0"
  cluster_version = "1.32"
  eks_managed_node_groups = { a = {
    instance_types = ["m5.large"]
    ami_type       = "AL2_x86_64"
    pre_bootstrap_user_data = "echo a"
  } }
}
"""
    (finding,) = run("eks.tf", text, "EKS002")
    assert (
        finding.fix.partition("; change with it whatever else")[0]
        == "use AL2023_x86_64_STANDARD, with pre_bootstrap_user_data as cloudinit_pre_nodeadm"
    )


@pytest.mark.parametrize(
    ("version", "fix"),
    [
        ('"~> 20.31"', "set enable_efa_support = true, in the group and in the module"),
        ('"~> 21.0"', "set enable_efa_support = true"),
        (
            "var.module",
            "set enable_efa_support = true, in the group and (up to version 20 of the module) in the module",
        ),
    ],
)
def test_the_module_opens_its_group_too(run: Run, version: str, fix: str) -> None:
    text = f"""module "eks" {{
  source  = "terraform-aws-modules/eks/aws"
  version = {version}
  eks_managed_node_groups = {{ gpu = {{
    instance_types = ["p5.48xlarge"]
    ami_type       = "AL2023_x86_64_NVIDIA"
    min_size       = 2
    max_size       = 4
  }} }}
}}
"""
    (finding,) = run("eks.tf", text, "TFM001")
    assert finding.fix == fix


def test_no_variable_gets_a_second_value(run: Run, tmp_path: Path) -> None:
    (tmp_path / "variables.tf").write_text('variable "node_count" {}\nvariable "region" {}\n')
    (finding,) = run("terraform.tfvars", 'node_count = 2\nnode_counts = 16\nregion = "us-east-2"\n', "TFM002")
    assert finding.fix.startswith("remove the line")
    (finding,) = run("terraform.tfvars", 'node_counts = 16\nregion = "us-east-2"\n', "TFM002")
    assert finding.fix == "did you mean 'node_count'?"


CLASS = """apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec:
  amiFamily: FAMILY
  role: nodes
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Custom"])
def test_the_alias_is_of_the_family_of_the_class(run: Run, family: str) -> None:
    text = CLASS.replace("FAMILY", family)
    (finding,) = run("class.yaml", text, "K8S006")
    if family == "Custom":
        assert finding.fix == "add amiSelectorTerms with the ids or tags of the images"
        return
    added = finding.fix.removeprefix("add ").partition(", or")[0]
    if family == "AL2":  # which has no images from Kubernetes 1.33 on
        assert finding.fix.endswith(", and write amiFamily: AL2023")
        family, text = "AL2023", CLASS.replace("FAMILY", "AL2023")
    assert added == f"amiSelectorTerms: [{{alias: {family.lower()}@latest}}]"
    validators = pytest.importorskip("jsonschema")
    schema = json.loads((SCHEMAS / "karpenter.k8s.aws_v1_EC2NodeClass.json").read_text())
    assert validators.Draft7Validator(schema).is_valid(yaml.safe_load(f"{text}  {added}\n"))


def test_all_that_a_class_lacks_is_one_finding(run: Run) -> None:
    text = CLASS.replace("FAMILY", "AL2").replace("  role: nodes\n", "")
    text = text.replace("  subnetSelectorTerms: [{tags: {a: b}}]\n", "")
    (finding,) = run("class.yaml", text, "K8S006")
    assert "without amiSelectorTerms and subnetSelectorTerms" in finding.message
    assert finding.fix.endswith(
        "subnetSelectorTerms with the tags or ids of the subnets, and role with the IAM role of the nodes"
    )


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]
      taints:
      - {key: team, value: ml, effect: NoSchedule}
      - {key: dedicated, effect: NoSchedule}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  nodeSelector: {karpenter.sh/nodepool: gpu}
  TOLERATIONS
  containers: [{name: a, image: b}]
"""


def test_every_taint_is_tolerated_at_once(run: Run) -> None:
    (finding,) = run("a.yaml", POOL.replace("TOLERATIONS", "hostIPC: true"), "K8S005")
    added = finding.fix.removeprefix("add tolerations: ")
    assert run("a.yaml", POOL.replace("TOLERATIONS", f"tolerations: [{added}]"), "K8S005") == []


POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: a
    image: b
    LINE
"""


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("command: python train.py", "write each word as an element of its own"),
        ("command: python", "write [python]"),
        ("ports: 8080", "write [{containerPort: 8080}]"),
        ("env: {A: b}", "write each variable as an element"),
        ("volumeMounts: {name: a, mountPath: /a}", "write a dash before its first key"),
        ("resources: {cpu: 4}", "write it below requests or limits"),
    ],
)
def test_a_list_as_it_is_meant(run: Run, line: str, fix: str) -> None:
    (finding,) = run("a.yaml", POD.replace("LINE", line), "K8S006")
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("imagePullPolicie: Always", "unknown field"),
        ("args: [1]", "cannot read the object"),
        ("imagePullPolicy: always", "refuses the pod"),
    ],
)
def test_the_reason_is_that_of_the_finding(run: Run, line: str, why: str) -> None:
    (finding,) = run("a.yaml", POD.replace("LINE", line), "K8S006")
    assert why in finding.why


def test_a_deployment_of_the_wrong_group_needs_a_selector_too(run: Run) -> None:
    text = "apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  template:\n    metadata: {labels: {a: b}}\n"
    (finding,) = run("a.yaml", f"{text}    spec: {{containers: [{{name: a, image: b}}]}}\n", "K8S006")
    assert finding.fix.startswith("write apiVersion: apps/v1, and spec.selector.matchLabels")


CONF = "ClusterName=a\nSlurmctldHost=b\nTaskPlugin=task/cgroup\nNodeName=a CPUs=8 Gres=gpu:4\nPartitionName=p Nodes=a\n"


@pytest.mark.parametrize(
    ("text", "code", "fix"),
    [
        # Run in slurmctld 22.05: a second GresTypes replaces the first, and CR_Memory alone is fatal.
        ("", "SLU004", "add GresTypes=gpu"),
        ("GresTypes=nic\n", "SLU004", "write GresTypes=gpu,nic"),
        (
            "GresTypes=gpu\nSelectType=select/cons_res\nSelectTypeParameters=CR_Core\n",
            "SLU005",
            "write select/cons_tres",
        ),
        (
            "GresTypes=gpu\nSelectType=cons_tres\nSelectTypeParameters=CR_Memory\n",
            "SLU005",
            "write select/cons_tres, and SelectTypeParameters=CR_Core_Memory",
        ),
        ("GresTypes=gpu\nSelectType=linear\nSelectTypeParameters=CR_Memory\n", "SLU005", "write select/linear"),
    ],
)
def test_slurmctld_takes_the_fix(run: Run, text: str, code: str, fix: str) -> None:
    (finding,) = run("slurm.conf", text + CONF, code)
    assert finding.fix == fix


EFA_GROUP = """resource "aws_security_group" "efa" {
  vpc_id = "vpc-0123456789abcdef0"
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}
resource "aws_launch_template" "gpu" {
  instance_type = "p4d.24xlarge"
  network_interfaces {
    interface_type  = "efa"
    security_groups = [aws_security_group.efa.id]
  }
}
"""


def test_how_a_group_names_itself(run: Run) -> None:
    (finding,) = run("efa.tf", EFA_GROUP, "NET003")
    assert finding.fix.endswith("to the group itself (self = true)")


def test_counts_are_raised_together(run: Run) -> None:
    group = "managedNodeGroups:\n- {name: a, instanceType: m5.large, minSize: 4, maxSize: 2, desiredCapacity: 3}\n"
    (finding,) = run("cluster.yaml", OLD + group, "CAP001")
    assert finding.fix == "raise it to 4 or more, and the desired count (3) to 4 or more"
    (finding,) = run("cluster.yaml", OLD + group.replace("desiredCapacity: 3", "desiredCapacity: 6"), "CAP001")
    assert finding.fix == "raise it to 6 or more"


LUSTRE = """resource "aws_fsx_lustre_file_system" "a" {
  subnet_ids       = ["subnet-0123456789abcdef0"]
  storage_capacity = 3600
  deployment_type  = "SCRATCH_1"
  LINE
}
"""


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (
            'kms_key_id = "arn:aws:kms:us-east-2:123456789012:key/a"',
            "remove it, or use PERSISTENT_2 with per_unit_storage_throughput: one of 125, 250, 500, 1000 and a size of "
            "4800 GiB",
        ),
        ("per_unit_storage_throughput = 250", "remove it, or use PERSISTENT_2 with a size of 4800 GiB"),
        (
            'import_path = "s3://a"\n  automatic_backup_retention_days = 7',
            "remove it",
        ),
        (
            'auto_import_policy = "NEW"',
            "add ImportPath; or remove it, and link the bucket by a data repository association",
        ),
    ],
)
def test_the_other_way_out_is_accepted_too(run: Run, line: str, fix: str) -> None:
    findings = run("a.tf", LUSTRE.replace("LINE", line), "STO002")
    assert fix in [finding.fix for finding in findings]


TEMPLATE = """AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Image: {Type: String, Default: /aws/service/ami}
Resources:
  A:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        ImageId: IMAGE
        UserData: !Sub |
          #!/bin/bash
          echo a
"""


@pytest.mark.parametrize(
    ("image", "fix"),
    [
        ("/aws/service/ami", "write '{{resolve:ssm:/aws/service/ami}}'"),
        ("!Ref Image", "give the parameter the type AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"),
    ],
)
def test_an_image_by_a_path(run: Run, image: str, fix: str) -> None:
    fixes = [finding.fix for finding in run("a.yaml", TEMPLATE.replace("IMAGE", image), "CFN001")]
    assert fix in fixes
    assert "put it below a key `Fn::Base64:` of its own, on the line below UserData" in fixes


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("AWS::Batch::JobQueue", "write !Ref Queue"),  # it has no attribute Arn
        ("AWS::SQS::Queue", "write !GetAtt Queue.Arn"),
    ],
)
def test_a_reference_that_the_resource_has(run: Run, kind: str, call: str) -> None:
    text = f"Resources:\n  Queue: {{Type: {kind}}}\n  A:\n    Type: AWS::Events::Rule\n"
    (finding,) = run("a.yaml", f"{text}    Properties: {{JobQueue: Queue}}\n", "CFN001")
    assert finding.fix == call


@pytest.mark.parametrize(("policy", "level"), [("STANDARD", "info"), ("EXTENDED", "warning")])
def test_a_cluster_that_eks_upgrades_is_not_charged_more(run: Run, policy: str, level: str) -> None:
    text = f"""module "eks" {{
  source                 = "terraform-aws-modules/eks/aws"
  cluster_version        = "1.33"
  cluster_upgrade_policy = {{ support_type = "{policy}" }}
  eks_managed_node_groups = {{ a = {{ instance_types = ["m5.large"] }} }}
}}
"""
    (finding,) = run("eks.tf", text, "EKS001")
    assert finding.level == level


@pytest.mark.parametrize(
    ("resources", "fix"),
    [
        ("limits: {nvidia.com/gpus: 1}", "write nvidia.com/gpu"),
        (
            "{limits: {nvidia.com/gpus: 1}, requests: {nvidia.com/gpus: 1}}",
            "write nvidia.com/gpu in requests and limits",
        ),
        ("limits: {nvidia.com/gpus: 1, nvidia.com/gpu: 1}", "remove it: nvidia.com/gpu is there too"),
    ],
)
def test_a_resource_is_respelt_everywhere(run: Run, resources: str, fix: str) -> None:
    line = f"resources: {resources}" if resources.startswith("{") else f"resources: {{{resources}}}"
    (finding,) = run("a.yaml", POD.replace("LINE", line), "K8S005")
    assert finding.fix == fix


def test_all_settings_of_a_link_by_path_are_named(run: Run) -> None:
    line = 'import_path = "s3://a"\n  auto_import_policy = "NEW"\n  per_unit_storage_throughput = 250'
    findings = run("a.tf", LUSTRE.replace("SCRATCH_1", "PERSISTENT_2").replace("LINE", line), "STO002")
    assert [finding.fix for finding in findings] == [
        "remove import_path and auto_import_policy, and link the bucket by a data repository association"
    ]


def test_releases_of_terraform_go_with_the_version(run: Run) -> None:
    text = """module "eks" {
  source          = "terraform-aws-modules/eks/aws"
  cluster_version = "1.29"
  cluster_addons  = { vpc-cni = {
    addon_version = "v1.18.1-eksbuild.3"
  } }
  eks_managed_node_groups = { a = {
    instance_types      = ["m5.large"]
    ami_release_version = "1.29.0-20240129"
  } }
}
"""
    (finding,) = run("eks.tf", text, "EKS001")
    assert "(ami_release_version) of that version, versions of the addons" in finding.fix


CONTAINER = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  JOB
  template:
    spec:
      restartPolicy: Never
      POD
      containers:
      - name: train
        image: a:1
        LINE
"""


@pytest.mark.parametrize(
    ("place", "line", "fix"),
    [
        ("JOB", "restartPolicy: Never", "remove it: the pod's spec has it too"),
        ("POD", "imagePullSecret: a", "write imagePullSecrets: [{name: a}]"),
        ("POD", "volumes: [{name: a, hostPath: /mnt/a}]", "write {path: /mnt/a}"),
        ("POD", "volumes: [{name: a, persistentVolumeClaim: a}]", "write {claimName: a}"),
        ("LINE", "ports: [29500]", "write {containerPort: 29500}"),
        ("LINE", "envFrom: [{secretKeyRef: {name: a, key: b}}]", "write secretRef, without key"),
        ("LINE", "env: [{name: A, valueFrom: {secretRef: {name: a, key: b}}}]", "write secretKeyRef"),
        ("LINE", "shm_size: 8Gi", "remove it, and mount an emptyDir with medium: Memory at /dev/shm"),
    ],
)
def test_a_key_is_written_so_that_kubernetes_takes_it(run: Run, place: str, line: str, fix: str) -> None:
    text = CONTAINER.replace(place, line)
    for other in ("JOB", "POD", "LINE"):
        text = "".join(row for row in text.splitlines(True) if row.strip() != other)
    (finding,) = run("a.yaml", text, "K8S006")
    assert finding.fix == fix


def test_an_older_selector_is_rewritten_with_the_version(run: Run) -> None:
    text = """apiVersion: v1
kind: Deployment
metadata: {name: gpu}
spec:
  selector: {app: a}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: "a:1"}]}}
"""
    (finding,) = run("a.yaml", text, "K8S006")
    assert finding.fix == "write apiVersion: apps/v1, and the labels of spec.selector below matchLabels there"


def test_a_job_of_the_wrong_group_also_needs_its_policy(run: Run) -> None:
    text = """apiVersion: v1
kind: Job
metadata: {name: gpu}
spec: {template: {spec: {containers: [{name: a, image: "a:1"}]}}}
"""
    (finding,) = run("a.yaml", text, "K8S002", "K8S006")
    assert finding.fix == ("write apiVersion: batch/v1, and add restartPolicy: Never (or OnFailure) beside containers")
