"""Patterns of public files that were read for the first time in November 2026: alarms that were wrong or repeated, and
mistakes that no rule saw. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import shown

from trainwright.check.engine import Selection, check


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("# p5.48xlarge\n", ["error ENV001 3"]),  # NVLink is known
        ("#SBATCH --gres=gpu:4\n", ["info ENV001 3"]),  # cards without NVLink, where this is a known remedy
        ("# g5.48xlarge\n", []),
    ],
)
def test_env001_p2p_disable_depends_on_nvlink(run, more: str, expected: list[str]) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\n{more}export NCCL_P2P_DISABLE=1\nsrun torchrun --nproc_per_node=4 t.py\n"
    assert shown(run("a.sbatch", text, "ENV001")) == expected


CLUSTER = """Region: us-east-2
Image: {{Os: ubuntu2204, CustomAmi: {ami}}}
HeadNode:
  InstanceType: m5.2xlarge
  Networking: {{SubnetId: {subnet}}}
  Ssh: {{KeyName: {key}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: cpu
      Networking: {{SubnetIds: [{subnet}]}}
      ComputeResources: [{{Name: c5, InstanceType: c5.4xlarge, MaxCount: 8}}]
"""


def test_placeholders_are_one_note_and_no_malformed_ids(run) -> None:  # type: ignore[no-untyped-def]
    letters = CLUSTER.format(ami="ami-AAAAAAAAAAAAAAAAA", subnet="subnet-YYYYYYYYYYYYYYYYY", key="mine")
    assert shown(run("a.yaml", letters, "CFG001", "CFG005")) == ["info CFG001 2"]
    prose = CLUSTER.format(ami="'<the image, e.g. ami-0a1b2c3d4e5f67890>'", subnet="subnet-0a1b2c3d4e5f67890", key="me")
    assert shown(run("b.yaml", prose, "CFG001", "CFG005")) == ["info CFG001 2"]
    wrong = CLUSTER.format(ami="ami-0a1b2c3d4e5f67890", subnet="sbnt-0a1b2c3d4e5f67890", key="me")
    assert shown(run("c.yaml", wrong, "CFG001", "CFG005")) == ["error CFG005 5", "error CFG005 11"]
    asked = CLUSTER.format(ami="ami-0a1b2c3d4e5f67890", subnet="subnet-REPLACE_ME", key="me")
    assert shown(run("d.yaml", asked, "CFG001", "CFG005")) == ["info CFG001 5"]
    dashes = CLUSTER.format(ami="ami-0a1b2c3d4e5f67890", subnet="subnet-xx-xx-xx", key="me")
    assert shown(run("e.yaml", dashes, "CFG001", "CFG005")) == ["info CFG001 5"]


EKSCTL = """apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {{name: one, region: us-west-2{version}}}
managedNodeGroups:
  - {{name: gpu, instanceType: p4d.24xlarge, availabilityZones: [us-west-2a], efaEnabled: true}}
"""


def test_eks001_knows_a_file_that_adds_groups_to_a_cluster(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", EKSCTL.format(version=""), "EKS001")) == []
    assert shown(run("b.yaml", EKSCTL.format(version=', version: "1.34"'), "EKS001")) == ["info EKS001 5"]


TORCHRUN = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=3
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=3 {options} train.py
"""


def test_job009_knows_that_c10d_ignores_the_master_address(run) -> None:  # type: ignore[no-untyped-def]
    ignored = TORCHRUN.format(options="--rdzv_backend=c10d --master_addr=$MASTER_ADDR --master_port=29400")
    [finding] = run("a.sbatch", ignored, "JOB009")
    assert (finding.level, finding.span.line) == ("error", 6)
    assert "--master_addr" in finding.message
    assert "--rdzv_endpoint" in finding.fix
    static = "--node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=$((10000 + SLURM_JOB_ID % 50000))"
    assert shown(run("b.sbatch", TORCHRUN.format(options=static), "JOB009")) == []
    met = "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 50000))"
    assert shown(run("c.sbatch", TORCHRUN.format(options=met), "JOB009")) == []


def test_one_image_and_one_missing_name_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{name: {0}}}\nspec:\n  containers:\n    - name: a\n"
    pod += "      image: registry.example.com/trainer:latest\n      resources: {{limits: {{nvidia.com/gpu: 1}}}}\n"
    pods = pod.format("one") + "---\n" + pod.format("two")
    [finding] = run("a.yaml", pods, "IMG003")
    assert finding.span.line == 7
    template = "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  Files:\n    Type: AWS::FSx::FileSystem\n"
    template += (
        "    Properties:\n      FileSystemType: LUSTRE\n      StorageCapacity: 1200\n      SubnetIds: [!Ref One]\n"
    )
    template += "      LustreConfiguration:\n        ImportPath: !Sub s3://${Bucket}/in\n"
    template += "        ExportPath: !Sub s3://${Bucket}/out\n"
    [finding] = run("b.yaml", template, "CFN001")
    assert (finding.span.line, "'Bucket'" in finding.message) == (8, True)


def test_job013_reads_the_options_of_sbatch(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH {}\nsrun hostname\n"
    [finding] = run("a.sbatch", text.format("--main-user=me@example.com"), "JOB013")
    assert (finding.level, finding.span.line) == ("error", 3)
    assert "--mail-user" in finding.fix
    for right in ("--mail-user=me@example.com", "--out=a.txt", "--container-image=a.sqsh", "--gpus-per-node=8",
                  "--site-option=1"):  # fmt: skip
        assert shown(run("b.sbatch", text.format(right), "JOB013")) == []
    [finding] = run("c.sbatch", text.format("--cpus_per_task=4"), "JOB013")
    assert "--cpus-per-task" in finding.fix


def test_cfg003_takes_no_label_of_terraform_for_a_name(run) -> None:  # type: ignore[no-untyped-def]
    text = 'resource "aws_eks_node_group" "gpu_nodes" {\n  cluster_name = "one"\n  node_group_name = "gpu"\n}\n'
    assert shown(run("main.tf", text, "CFG003")) == []


def test_slu005_asks_less_of_nodes_with_one_gpu(run) -> None:  # type: ignore[no-untyped-def]
    text = "ClusterName=one\nGresTypes=gpu\nSelectType=select/cons_tres\nTaskPlugin=task/affinity\n"
    text += "NodeName=n[1-4] CPUs=8 Gres=gpu:titan:{}\nPartitionName=main Nodes=n[1-4] Default=YES\n"
    assert shown(run("slurm.conf", text.format(1), "SLU005")) == ["info SLU005 4"]
    assert shown(run("slurm.conf", text.format(4), "SLU005")) == ["warning SLU005 4"]


def test_shl001_finds_a_comment_after_the_backslash(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\naccelerate launch \\\n  --num_processes=4 \\ # over all nodes\n"
    text += "  --num_machines=1 \\\n  train.py\n"
    [finding] = run("a.sh", text, "SHL001")
    assert finding.span.line == 3
    assert "comment" in finding.message
    assert shown(run("b.sh", text.replace(" # over all nodes", ""), "SHL001")) == []


QUEUE = """Region: us-east-2
Image: {{Os: ubuntu2204}}
HeadNode: {{InstanceType: m5.2xlarge, Networking: {{SubnetId: subnet-0a1b2c3d4e5f67890}}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: block
      CapacityType: CAPACITY_BLOCK
      {key}: cr-0a1b2c3d4e5f67890
      Networking: {{SubnetIds: [subnet-0a1b2c3d4e5f67890], PlacementGroup: {{Enabled: false}}}}
      ComputeResources: [{{Name: p4d, InstanceType: p4d.24xlarge, MinCount: 2, MaxCount: 2, Efa: {{Enabled: true}}}}]
"""


def test_cap001_leaves_an_id_under_a_wrong_key_to_cfg005(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", QUEUE.format(key="CapacityReservationId"), "CAP001", "CFG005")) == ["error CFG005 9"]
    assert "error CAP001 8" in shown(run("b.yaml", QUEUE.format(key="Reservation"), "CAP001"))


def test_k8s001_knows_that_kuberay_mounts_shared_memory(run) -> None:  # type: ignore[no-untyped-def]
    worker = (
        "{spec: {containers: [{name: w, image: 'rayproject/ray:2.9.0', resources: {limits: {nvidia.com/gpu: 4}}}]}}"
    )
    text = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: ray}\nspec:\n"
    text += f"  headGroupSpec: {{template: {worker}}}\n"
    assert shown(run("a.yaml", text, "K8S001")) == []


@pytest.mark.parametrize(("deployment", "level"), [("SCRATCH_2", "info"), ("PERSISTENT_2", "warning")])
def test_sto007_is_a_note_for_scratch(run, deployment: str, level: str) -> None:  # type: ignore[no-untyped-def]
    storage = "SharedStorage:\n  - {Name: f, StorageType: FsxLustre, MountDir: /fsx, FsxLustreSettings: "
    storage += f"{{StorageCapacity: 1200, DeploymentType: {deployment}}}}}\n"
    [finding] = run("a.yaml", QUEUE.format(key="Reservation") + storage, "STO007")
    assert finding.level == level


@pytest.mark.parametrize("setting", ["IB_CUDA_SUPPORT=1", "LL_THRESHOLD=0", "CHECK_DISABLE=1", "DEBUG=debug"])
def test_env002_knows_settings_that_nccl_does_not_read(run, setting: str) -> None:  # type: ignore[no-untyped-def]
    text = f"#!/bin/bash\nexport NCCL_{setting}\ntorchrun --nproc_per_node=8 train.py\n"
    assert shown(run("a.sh", text, "ENV002")) == ["info ENV002 2"]


LUSTRE = """resource "aws_fsx_lustre_file_system" "data" {
  storage_capacity = var.capacity
  deployment_type = "SCRATCH_2"
  subnet_ids = [var.subnet]
}
"""


def test_terraform_variables_have_the_values_of_their_directory(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("main.tf", LUSTRE, "STO001")) == []  # nothing says how large it is
    (tmp_path / "variables.tf").write_text('variable "capacity" {\n  default = 1500\n}\n')
    [finding] = run("main.tf", LUSTRE, "STO001")
    assert finding.span.line == 2
    assert "1,500" in finding.message or "1500" in finding.message
    (tmp_path / "terraform.tfvars").write_text('capacity = 1200\nsubnet = "subnet-0a1b2c3d4e5f67890"\n')
    assert shown(run("main.tf", LUSTRE, "STO001")) == []
    (tmp_path / "more.auto.tfvars").write_text("capacity = 1300\n")
    assert shown(run("main.tf", LUSTRE, "STO001")) == ["error STO001 2"]


def test_job016_reads_the_script_that_srun_starts(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    batch = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
    batch += "srun --label bash run.sh\n"
    inner = "#!/bin/bash\ntorchrun --nnodes={} --nproc_per_node={} --rdzv_backend=c10d "
    inner += "--rdzv_endpoint=$HEAD:29500 train.py\n"
    (tmp_path / "run.sh").write_text(inner.format(2, 8))
    assert shown(run("job.sbatch", batch, "JOB016")) == ["error JOB016 5", "error JOB016 5"]
    (tmp_path / "run.sh").write_text(inner.format("$SLURM_NNODES", 4))
    assert shown(run("job.sbatch", batch, "JOB016")) == []
    (tmp_path / "run.sh").write_text(inner.format(2, 4))
    assert shown(run("job.sbatch", batch.replace("srun", "srun -N 2"), "JOB016")) == []


@pytest.mark.parametrize(("deployment", "expected"), [("PERSISTENT_2", ["error STO002 4"]), ("PERSISTENT_1", [])])
def test_sto002_knows_how_persistent_2_is_linked(run, deployment: str, expected: list[str]) -> None:  # type: ignore[no-untyped-def]
    text = 'resource "aws_fsx_lustre_file_system" "data" {\n  storage_capacity = 2400\n'
    text += f'  deployment_type = "{deployment}"\n  import_path = "s3://${{var.bucket}}"\n'
    text += f"  per_unit_storage_throughput = {250 if deployment == 'PERSISTENT_2' else 200}\n}}\n"
    assert shown(run("main.tf", text, "STO002")) == expected


def test_job001_knows_that_deepspeed_counts_per_node(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "#!/bin/bash\ndeepspeed --num_gpus={} --num_nodes=8 --master_addr=$MASTER_ADDR train.py --deepspeed ds.json\n"
    )
    [finding] = run("a.sh", text.format(64), "JOB001")
    assert finding.fix == "write --num_gpus=8"
    assert shown(run("b.sh", text.format(8), "JOB001")) == []


PIP = """FROM nvidia/cuda:12.4.1-devel-ubuntu22.04
RUN pip install torch>=2.4 \\
    accelerate>=0.29
"""
WIDE = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Statement: [{{Effect: Allow, Principal: {{Service: {service}}}, Action: "sts:AssumeRole"}}]
      Policies:
        - PolicyName: one
          PolicyDocument: {{Statement: [{{Effect: Allow, Action: "*", Resource: "*"}}]}}
        - PolicyName: two
          PolicyDocument: {{Statement: [{{Effect: Allow, Action: "*", Resource: "*"}}]}}
"""


def test_one_cause_is_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    [finding] = run("Dockerfile", PIP, "SHL001")
    assert (finding.span.line, "1 more" in finding.message) == (2, True)
    scripts = CLUSTER.format(ami="ami-0a1b2c3d4e5f67890", subnet="subnet-0a1b2c3d4e5f67890", key="me").replace(
        "  Ssh:",
        "  CustomActions:\n    OnNodeConfigured:\n      Sequence:\n"
        "        - Script: https://raw.githubusercontent.com/o/r/main/a.sh\n"
        "        - Script: https://raw.githubusercontent.com/o/r/main/b.sh\n"
        "        - Script: https://raw.githubusercontent.com/o/other/main/c.sh\n  Ssh:",
    )
    first, second = run("a.yaml", scripts, "IMG002")
    assert (first.span.line, "line 10" in first.message, second.span.line) == (9, True, 11)
    [finding] = run("b.yaml", WIDE.format(service="ec2.amazonaws.com"), "SEC004")
    assert (finding.span.line, "lines 12" in finding.message) == (10, True)


def test_templates_that_are_not_of_clusters_are_left_to_others(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", WIDE.format(service="cloudformation.amazonaws.com"), "SEC004") == []
    queue = "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  TrainingTasks:\n    Type: {}\n"
    queue += "    Properties:\n      Tags: [{{Key: a, Value: !Ref Nowhere}}]\n"
    assert run("b.yaml", queue.format("AWS::SQS::Queue"), "CFN001") == []
    assert shown(run("c.yaml", queue.format("AWS::EFS::FileSystem"), "CFN001")) == ["error CFN001 6"]
    part = queue.format("AWS::EFS::FileSystem").split("\n", 1)[1]  # of a template, in a manual
    assert shown(run("d.yaml", part, "CFN001")) == ["info CFN001 5"]


def test_stand_ins_of_jinja_are_not_variables(run) -> None:  # type: ignore[no-untyped-def]
    text = '#!/bin/bash\n#SBATCH --nodes=1\nn=0\nuntil [ "$n" -ge {{retries}} ]\ndo\n  srun a.sh && break\ndone\n'
    assert run("run.sh.jinja2", text, "SHL001") == []
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n    - name: a\n"
    pod += "      image: {{registry}}/trainer:latest\n      resources: {limits: {nvidia.com/gpu: 1}}\n"
    [finding] = run("pod.yaml.j2", pod, "IMG003")
    assert "{{…}}/trainer:latest" in finding.message


def test_a_placeholder_is_an_error_where_the_rest_was_filled_in(run) -> None:  # type: ignore[no-untyped-def]
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n"
    text += "main_process_ip: <INSERT_IP>\nnum_machines: 2\nnum_processes: 16\n"
    assert shown(run("a.yaml", text, "CFG001")) == ["info CFG001 3"]


def test_input_of_tests_is_not_searched(tmp_path: Path) -> None:
    for folder in ("tests/resources", "fixtures", "jobs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "Dockerfile").write_text(PIP)
    found = check([str(tmp_path)], Selection(select=("SHL001",))).findings
    assert [Path(finding.file).parent.name for finding in found] == ["jobs"]
    assert check([str(tmp_path / "fixtures/Dockerfile")], Selection(select=("SHL001",))).findings


def test_tfvars_are_compared_with_the_variables_above_them(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text('variable "node_count" {\n  default = 2\n}\n')
    (tmp_path / "environments").mkdir()
    values = tmp_path / "environments/prod.tfvars"
    values.write_text('node_count = 4\nnode_cuont = 16\ntoken = "hf_' + "aB3xQ" * 3 + "mZ7kL" * 4 + '"\n')
    found = check([str(tmp_path)]).findings
    assert {f"{finding.code} {finding.span.line}" for finding in found} == {"TFM002 2", "TFM002 3", "SEC003 3"}


POOL = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: ml-training}}
spec:
  template:
    spec:
      requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge, p4d.24xlarge]}}]
{more}"""


def test_k8s003_knows_the_default_policy_of_karpenter(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", POOL.format(more=""), "K8S003")) == ["info K8S003 3"]
    assert run("b.yaml", POOL.format(more="  disruption: {consolidationPolicy: WhenEmpty}\n"), "K8S003") == []
    assert run("c.yaml", POOL.format(more="  disruption: {budgets: [{nodes: '0'}]}\n"), "K8S003") == []


def test_tfm001_asks_for_efa_where_nodes_train(run) -> None:  # type: ignore[no-untyped-def]
    group = 'module "eks" {\n  eks_managed_node_groups = {\n    %s = {\n      instance_types = ["p4d.24xlarge"]\n'
    group += '      ami_type = "AL2023_x86_64_NVIDIA"\n      max_size = 2\n    }\n  }\n}\n'
    assert shown(run("a.tf", group % "training", "TFM001")) == ["warning TFM001 4"]
    assert run("b.tf", group % "gpu-inference", "TFM001") == []


def test_a_type_of_cloudformation_is_no_placeholder(run) -> None:  # type: ignore[no-untyped-def]
    text = "AWSTemplateFormatVersion: '2010-09-09'\nParameters:\n  Zone:\n"
    text += "    Type: AWS::SSM::Parameter::Value<String>\n    Default: /zone\n"
    text += "Resources:\n  Group:\n    Type: AWS::EC2::SecurityGroup\n    Properties:\n"
    text += "      GroupDescription: nodes\n      VpcId: vpc-0a1b2c3d4e5f67890\n"
    assert run("a.yaml", text, "CFG001") == []
