"""Patterns of packages and repositories that no rule had seen (sets F and T of docs/check.md): what was noise or false
there, and beside it what must still be found. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reported import shown

from trainwright.check.finding import Finding
from trainwright.cli.check import command


@pytest.fixture
def run(run: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    return lambda name, text, *codes: shown(run(name, text, *codes))


def rows(folder: Path, *options: str) -> list[dict[str, Any]]:
    answer = CliRunner().invoke(command, [str(folder), "--format", "json", "--no-cache", *options])
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --output={log}\nsrun hostname\n"


def test_one_cause_in_several_files_of_a_directory_is_one_finding(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.sbatch").write_text(SBATCH.format(log=f"logs/{name}-%j.out"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/d.sbatch").write_text(SBATCH.format(log="out/%j.out"))
    first, second = rows(tmp_path, "--select", "SHL001")
    others = [{"file": str(tmp_path / f"{name}.sbatch"), "line": 3, "column": 18} for name in "bc"]
    assert first["also"] == others
    assert "also" not in first["message"]
    text = CliRunner().invoke(command, [str(tmp_path), "--select", "SHL001", "--no-cache"])
    assert "(also b.sbatch:3, c.sbatch:3)" in text.stdout
    [counted] = rows(tmp_path, "--select", "SHL001", "--statistics")
    assert counted["count"] == 4  # every place
    assert second["file"].endswith("d.sbatch")
    annotated = CliRunner().invoke(command, [str(tmp_path), "--format", "github", "--select", "SHL001", "--no-cache"])
    assert annotated.stdout.count("::notice") == 4  # beside every line


def test_a_baseline_knows_every_file_of_a_cause(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.sbatch").write_text(SBATCH.format(log="logs/%j.out"))
    baseline = str(tmp_path / "known.json")
    CliRunner().invoke(command, [str(tmp_path), "--write-baseline", baseline])
    (tmp_path / "a.sbatch").write_text(SBATCH.format(log="%j.out"))
    assert rows(tmp_path, "--select", "SHL001", "--baseline", baseline) == []
    (tmp_path / "c.sbatch").write_text(SBATCH.format(log="logs/%j.out"))
    [new] = rows(tmp_path, "--select", "SHL001", "--baseline", baseline)
    assert new["file"].endswith("c.sbatch")


@pytest.mark.parametrize("folder", ["tests", "test", "__tests__", ".buildkite", "pkg/tests/deep"])
def test_input_of_tests_and_build_services_is_not_searched(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    job = tmp_path / folder / "a.sbatch"
    job.write_text(SBATCH.format(log="logs/%j.out"))
    assert rows(tmp_path, "--select", "SHL001") == []
    assert len(rows(job, "--select", "SHL001")) == 1  # named
    assert len(rows(tmp_path / folder, "--select", "SHL001")) == 1  # named, as a directory


def test_sbatch_takes_tasks_per_node(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --{}=4\nsrun hostname\n"
    assert run("a.sbatch", text.format("tasks-per-node"), "JOB013") == []
    assert run("b.sbatch", text.format("ntask-per-node"), "JOB013") == ["error JOB013 2"]


def test_a_log_directory_of_a_template_is_not_known(run) -> None:  # type: ignore[no-untyped-def]
    for name in ("@LOG", "<logs>", "%LOGS%", "{logs}", "[LOGS]", "__LOGS__"):
        assert run("a.sh", SBATCH.format(log=f"{name}/x.log"), "SHL001") == []


SCRIPT = """import torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("nccl")
{body}
loss.backward()
"""

TWINS = """
class Stopper:
    def choose(self, loss):
        return self.judge(loss)
    def judge(self, loss):
        torch.save({}, "best.pt")
def fit(model):
    stopper.choose(1)
def fit_with_ddp(local_rank, model):
    if local_rank == 0:
        stopper.choose(1)
"""


def test_a_save_on_the_way_without_a_process_group_is_one_of_one_process(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body=TWINS), "PYT002") == []
    for test in ("not args.distributed", "world_size == 1", "not self.ddp"):
        assert run("a.py", SCRIPT.format(body=f"if {test}:\n    torch.save(state, path)"), "PYT002") == []
    unguarded = TWINS.replace("fit_with_ddp", "fit_on_nodes")
    assert run("a.py", SCRIPT.format(body=unguarded), "PYT002") == ["info PYT002 9"]


def test_saves_of_one_script_are_one_finding(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT.format(body="torch.save(a, 'a.pt')\ntorch.save(b, 'b.pt')"))
    [finding] = rows(tmp_path, "--select", "PYT002")
    assert [place["line"] for place in finding["also"]] == [5]


def test_a_dataset_that_may_divide_itself_is_not_reported(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(context), batch_size=8)"), "PYT001") == []
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(c), shuffle=False)"), "PYT001") == []
    shuffled = "loader = DataLoader(MyData(args), batch_size=8, shuffle=True)"
    assert run("a.py", SCRIPT.format(body=shuffled), "PYT001") == ["info PYT001 4"]
    local = "class MyData:\n    def __getitem__(self, i): return i\nloader = DataLoader(MyData(args), batch_size=8)"
    assert run("a.py", SCRIPT.format(body=local), "PYT001") == ["info PYT001 6"]


RESUME = (
    'opts = [torch.optim.AdamW(p)]\nif resume:\n    ck = torch.load("a.pt")\nif rank == 0:\n    torch.save({}, "a.pt")'
)


def test_optimizers_may_be_saved_in_a_list(run) -> None:  # type: ignore[no-untyped-def]
    saved = '{{"model": m, "optimizers": [o.state_dict() for o in opts]}}'.replace("{{", "{").replace("}}", "}")
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", saved)), "PYT003") == []
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", '{"model": m}')), "PYT003") == ["info PYT003 8"]


POD = """apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  template:
    spec:
      containers:
      - name: a
        image: registry.example.com/team/train:latest
        resources: {limits: {nvidia.com/gpu: 8}}
        env:
        - name: WANDB_API_KEY
          value: %s
"""


def test_a_written_key_is_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", POD % "0123456789abcdef0123456789abcdef01234567", "K8S001", "SEC003") == [
        "info K8S001 10",  # shared memory
        "error SEC003 13",
    ]
    assert "warning K8S001 13" in run("a.yaml", POD % "local-secret", "K8S001", "SEC003")


def test_latest_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", POD % "x", "IMG003") == ["info IMG003 9"]
    assert run("Dockerfile", "FROM nvidia/cuda AS a\nFROM busybox\nRUN pip install torch\n", "IMG003") == [
        "info IMG003 1",
        "info IMG003 2",
    ]
    job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n" + (
        "    Worker:\n      replicas: 4\n      template:\n        spec:\n          containers:\n"
        "          - {name: pytorch, image: 'example.com/train:latest', resources: {limits: {nvidia.com/gpu: 8}}}\n"
    )
    assert run("b.yaml", job, "IMG003") == ["info IMG003 11"]
    two = "FROM a:1\nENV EFA_INSTALLER_VERSION=1.30.0\nENV EFA_INSTALLER_VERSION=1.43.1\nRUN nccl\n"
    assert run("Dockerfile", two, "IMG003") == ["warning IMG003 3"]


def test_downloads_and_clones_of_a_branch_are_notes(run) -> None:  # type: ignore[no-untyped-def]
    address = "https://raw.githubusercontent.com/o/r/main/get.sh"
    assert run("a.sh", f"#!/bin/bash\ncurl -s {address} | bash\n", "IMG002") == ["info IMG002 2"]
    clone = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN git clone https://github.com/o/r && cd r && make\n"
    assert run("Dockerfile", clone, "IMG002") == ["info IMG002 2"]
    assert run("Dockerfile", clone.replace("r &&", "r && cd r && git checkout -b v1.2 &&", 1), "IMG002") == [
        "warning IMG002 2"
    ]


GROUP = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  {name}:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: a
      SecurityGroupIngress:
      - {{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0}}
"""


def test_a_jump_host_is_reached_from_everywhere(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", GROUP.format(name="BastionGroup"), "SEC004") == []
    assert run("ssh-bastion/module.yml", GROUP.format(name="SecurityGroup"), "SEC004") == []
    assert run("a.yaml", GROUP.format(name="HeadNodeGroup"), "SEC004") == ["warning SEC004 8"]


BUCKET = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  {name}:
    Type: AWS::S3::Bucket
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {{LaunchTemplateData: {{InstanceType: p5.48xlarge, MetadataOptions: {{HttpTokens: required}}}}}}
"""


def test_a_bucket_for_logs_holds_no_data(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", BUCKET.format(name="NlbLogBucket"), "STO007") == []
    named = BUCKET.format(name="S3Bucket").replace(
        "::Bucket\n", "::Bucket\n    Properties: {BucketName: cfn-elblogs}\n"
    )
    assert run("a.yaml", named, "STO007") == []
    assert run("a.yaml", BUCKET.format(name="DataBucket"), "STO007") == ["warning STO007 3"]


def test_names_of_a_template_without_nodes_are_cfn_lints(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  Nat:\n    Type: AWS::EC2::NatGateway\n"
        "    Properties: {SubnetId: !Ref PublicSubnet}\n"
    )
    assert run("a.yaml", text, "CFN001") == []
    nodes = "  GpuNodes:\n    Type: AWS::EC2::LaunchTemplate\n    Properties: {LaunchTemplateData: {ImageId: ami-1}}\n"
    assert run("a.yaml", text + nodes, "CFN001") == ["error CFN001 5"]


def test_one_cause_in_several_directories_is_one_finding(tmp_path: Path) -> None:
    for name in ("a/one.sbatch", "b/two.sbatch"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(SBATCH.format(log="logs/%j.out"))
    [finding] = rows(tmp_path, "--select", "SHL001")
    assert [Path(place["file"]).name for place in finding["also"]] == ["two.sbatch"]


@pytest.mark.parametrize("name", ["testData/a.sbatch", "broken_job.sbatch", "insecure/a.sbatch", "testJob.sbatch"])
def test_files_that_are_wrong_on_purpose_are_not_searched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(SBATCH.format(log="logs/%j.out"))
    assert rows(tmp_path, "--select", "SHL001") == []
    assert len(rows(tmp_path / name, "--select", "SHL001")) == 1


ROLE = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  HpcVpc: {{Type: AWS::EC2::VPC}}
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Statement: [{{Effect: Allow, Principal: {principal}, Action: 'sts:AssumeRole'}}]
      ManagedPolicyArns: ['arn:aws:iam::aws:policy/AdministratorAccess']
"""


def test_roles_of_people_and_build_services_are_not_those_of_nodes(run) -> None:  # type: ignore[no-untyped-def]
    for principal in ("{AWS: !Ref Admins}", "{Service: codebuild.amazonaws.com}"):
        assert run("a.yaml", ROLE.format(principal=principal), "SEC004") == []
    assert run("a.yaml", ROLE.format(principal="{Service: ec2.amazonaws.com}"), "SEC004") == ["warning SEC004 9"]


def test_a_load_balancer_answers_everybody(run) -> None:  # type: ignore[no-untyped-def]
    every = GROUP.replace("IpProtocol: tcp, FromPort: 22, ToPort: 22", "IpProtocol: -1")
    assert run("a.yaml", every.format(name="LoadBalancerSecurityGroup"), "SEC004") == []
    assert run("a.yaml", every.format(name="GpuSecurityGroup"), "SEC004") == ["warning SEC004 8"]


def test_ids_that_are_any_text_are_no_references(run) -> None:  # type: ignore[no-untyped-def]
    text = """AWSTemplateFormatVersion: '2010-09-09'
Resources:
  Files: {Type: AWS::S3::Bucket}
  Cdn:
    Type: AWS::CloudFront::Distribution
    Properties:
      DistributionConfig:
        Origins: [{Id: Files, DomainName: example.com}]
        DefaultCacheBehavior: {TargetOriginId: Files}
  Net: {Type: AWS::EC2::VPC}
  SlurmSubnet: {Type: AWS::EC2::Subnet, Properties: {VpcId: Net}}
"""
    assert run("a.yaml", text, "CFN001") == ["error CFN001 11"]


def test_optional_parameters_without_a_default_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    text = "AWSTemplateFormatVersion: '2010-09-09'\nParameters:\n" + "".join(
        f"  {name}: {{Type: String, Description: Optional name}}\n" for name in ("One", "Two")
    )
    text += "Resources:\n  Net: {Type: AWS::EC2::VPC, Properties: {Tags: [!Ref One, !Ref Two]}}\n"
    assert run("a.yaml", text, "CFN001") == ["info CFN001 3"]


def test_a_template_that_a_tool_completes_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    head = "AWSTemplateFormatVersion: '2010-09-09'\nResources: # HPC\n"
    text = head + "  Net: {Type: AWS::EC2::VPC, Properties: {Tags: [%s]}}\n"
    many = ", ".join(f"!Ref {name}" for name in ("Alpha", "Beta", "Gamma", "Netz"))
    assert run("a.yaml", text % many, "CFN001") == ["info CFN001 3"]
    assert run("a.yaml", text % "!Ref Netz", "CFN001") == ["error CFN001 3"]


def test_shell_variables_of_other_names_are_no_misspellings(run) -> None:  # type: ignore[no-untyped-def]
    for one, other in (("pr_options", "vp_options"), ("NEXUS_VERSION", "NEXUS3_VERSION")):
        assert run("a.sh", f"#!/bin/bash\n{one}=1\ntrain ${one} ${other}\n", "SHL001") == []
    assert run("a.sh", "#!/bin/bash\nbase_name=1\necho $basename\n", "SHL001") == []  # a message on the screen
    assert run("a.sh", "#!/bin/bash\nbase_name=1\ntrain $basename\n", "SHL001") == ["info SHL001 3"]


def test_values_of_the_environment_are_meant(run) -> None:  # type: ignore[no-untyped-def]
    head = "#!/bin/bash\n#SBATCH -N 2\n"
    assert run("a.sh", f"{head}if [[ $BATCH -eq 0 ]]; then srun hostname; fi\n", "SHL001") == []
    several = "if [ $TP -gt 1 ]; then srun a --pp $PP --cp $CP --lr $LR; fi\n"
    assert run("a.sh", head + several, "SHL001") == []
    assert run("a.sh", head + "if [ $TP -gt 1 ]; then srun hostname; fi\n", "SHL001") == ["info SHL001 3"]


def test_unquoted_requirements_of_a_file_are_one_finding(run) -> None:  # type: ignore[no-untyped-def]
    assert run("Dockerfile", "FROM torch:1\nRUN pip install a>=1\nRUN pip install b>=2 c>=3\n", "SHL001") == [
        "warning SHL001 2"
    ]


def test_a_class_for_several_processes_may_override_the_save(run) -> None:  # type: ignore[no-untyped-def]
    body = (
        "class One:\n    def save(self):\n        torch.save(a, 'a.pt')\n    def fit(self):\n        self.save()\n"
        "class Many(One):\n    def save(self):\n        if self.rank != 0:\n            return\n"
        "        super().save()\n"
    )
    assert run("a.py", SCRIPT.format(body=body), "PYT002") == []
    assert run("a.py", SCRIPT.format(body="torch.save(model, wdir / 'init.pt')"), "PYT002") == []


def test_argparse_takes_the_beginning_of_an_option(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    parser = 'p = ArgumentParser(%s)\np.add_argument("--load-path")\np.add_argument("--seed")\np.parse_args()\n'
    (tmp_path / "c.py").write_text(parser % "")
    assert run("a.sh", "python c.py --load x --see 1\n", "JOB013") == []
    assert run("a.sh", "python c.py --lode epoch9\n", "JOB013") == ["error JOB013 1"]
    (tmp_path / "c.py").write_text(parser.replace("Arg", "FlexibleArg", 1) % "")
    assert run("a.sh", "python c.py --load_path x\n", "JOB013") == []


MEGATRON = """#!/bin/bash
NNODES=1
torchrun --nproc_per_node 8 --nnodes $NNODES --master_addr localhost --master_port 6000 pretrain_gpt.py \\
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 \\
  --micro-batch-size 1 --global-batch-size 1536 --tensor-model-parallel-size 8 --pipeline-model-parallel-size {pp}
"""


def test_a_script_for_more_nodes_than_are_filled_in_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.sh", MEGATRON.format(pp=16), "JOB002") == ["info JOB002 5"]
    assert run("a.sh", MEGATRON.format(pp=3).replace("--nnodes $NNODES", "--nnodes 4"), "JOB002")[0].startswith("error")


def test_a_database_is_slurms_only_beside_slurm(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "AWSTemplateFormatVersion: '2010-09-09'\nDescription: %s\nResources:\n  G:\n    Type: AWS::RDS::DBSubnetGroup\n"
        "    Properties: {DBSubnetGroupDescription: a, SubnetIds: [subnet-1]}\n"
    )
    assert run("a.yaml", text % "a network", "SLU002") == []
    assert run("a.yaml", text % "accounting of Slurm", "SLU002") == ["error SLU002 6"]


def test_variables_without_effect_are_not_reported(run) -> None:  # type: ignore[no-untyped-def]
    job = "#!/bin/bash\n#SBATCH --gpus-per-node=8\n{}srun torchrun --nproc_per_node=8 a.py\n"
    assert run("a.sbatch", job.format("export NCCL_P2P_DISABLE=1\n"), "ENV001") == ["info ENV001 3"]
    alone = "export CUDA_VISIBLE_DEVICES=$gpu\nexport NCCL_P2P_DISABLE=1\n"
    assert run("a.sbatch", job.format(alone), "ENV001") == []
    debug = "if [ $DEBUG = 1 ]; then\nexport NCCL_DEBUG_SUBSYS=ALL\nfi\n"
    assert run("a.sbatch", job.format(debug), "ENV002") == []
    assert run("a.sbatch", job.format("export NCCL_DEBUG_SUBSYS=ALL\n"), "ENV002") == ["warning ENV002 3"]


def test_a_version_may_be_in_the_path_of_an_image(run) -> None:  # type: ignore[no-untyped-def]
    image = "vault.habana.ai/gaudi-docker/1.20.1/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:latest"
    assert run("Dockerfile", f"FROM {image}\n", "IMG003") == []
    assert run("Dockerfile", "FROM YOUR_USER/pytorch:latest\n", "IMG003") == []
    assert run("Dockerfile", "FROM team/pytorch:latest\n", "IMG003") == ["info IMG003 1"]


HYPERPOD = {
    "ClusterName": "ml",
    "InstanceGroups": [
        {"InstanceGroupName": name, "InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "ThreadsPerCore": 1,
         "LifeCycleConfig": {"SourceS3Uri": "s3://ours/src", "OnCreate": "on_create.sh"},
         "ExecutionRole": "arn:aws:iam::111122223333:role/nodes"} for name in ("controller", "worker")
    ],
}  # fmt: skip


def test_hyperpods_file_may_be_completed_on_the_command_line(run) -> None:  # type: ignore[no-untyped-def]
    file = {key: value for key, value in HYPERPOD.items() if key != "ClusterName"} | {"_comment": "ours"}
    assert run("cluster-config.json", json.dumps(file, indent=1), "HYP003") == ["info HYP003 1", "info HYP003 26"]
    wrong = json.dumps(HYPERPOD | {"NodeRecovry": "None"}, indent=1)
    assert run("cluster-config.json", wrong, "HYP003") == ["error HYP003 27"]


def test_masked_ids_are_placeholders(run) -> None:  # type: ignore[no-untyped-def]
    text = json.dumps(HYPERPOD).replace("111122223333", "************")
    assert run("cluster-config.json", text, "HYP003") == []
    assert run("cluster-config.json", text.replace("************", "11112222"), "HYP003")[:1] == ["error HYP003 1"]


def test_the_bucket_of_lifecycle_scripts_is_a_note(run) -> None:  # type: ignore[no-untyped-def]
    assert run("cluster-config.json", json.dumps(HYPERPOD), "HYP001") == ["info HYP001 1"] * 2


def test_groups_of_an_eks_cluster_are_in_no_partition(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    partitions = {"workload_manager": "slurm", "controller_group": "controller", "worker_groups": []}
    (tmp_path / "provisioning_parameters.json").write_text(json.dumps({"version": "1.0.0", **partitions}))
    assert "warning HYP001 1" in run("cluster-config.json", json.dumps(HYPERPOD), "HYP001")
    eks = HYPERPOD | {"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-2:111122223333:cluster/ml"}}}
    assert "warning HYP001 1" not in run("cluster-config-eks.json", json.dumps(eks), "HYP001")


def test_a_process_group_of_one_process_shares_nothing(run) -> None:  # type: ignore[no-untyped-def]
    text = SCRIPT.format(body="loader = DataLoader(data, shuffle=True)\ntorch.save(a, 'a.pt')")
    assert run("a.py", text, "PYT") == ["info PYT001 4", "info PYT002 5"]
    assert run("a.py", text.replace('"nccl"', '"nccl", world_size=1, rank=0'), "PYT") == []


def test_a_rank_is_asked_for_in_many_ways(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body="if args.gpu == 0:\n    torch.save(a, 'a.pt')"), "PYT002") == []
    body = (
        "class A:\n    async def fit(self):\n        if self.is_master:\n            await self.save()\n"
        "    async def save(self):\n        torch.save(a, 'a.pt')\n"
    )
    assert run("a.py", SCRIPT.format(body=body), "PYT002") == []
    unguarded = body.replace("if self.is_master", "if epoch % 2")
    assert run("a.py", SCRIPT.format(body=unguarded), "PYT002") == ["info PYT002 9"]


def test_a_download_of_weights_is_no_resume(run) -> None:  # type: ignore[no-untyped-def]
    text = SCRIPT.format(body=RESUME.replace("if resume", "if snapshot_download").replace("{}", '{"model": m}'))
    assert run("a.py", text, "PYT003") == []


def test_programs_of_awk_and_arguments_of_builds_are_not_shell(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.sh", "#!/bin/bash\nadded==0\n", "SHL001") == []
    assert run("a.sh", "#!/bin/bash\ntorch==2.1\n", "SHL001") == ["warning SHL001 2"]
    image = "FROM a:1\nARG SPARK_VERSION\nARG SPARKR_VERSION=3\nRUN get $SPARK_VERSION $SPARKR_VERSION\n"
    assert run("Dockerfile", image, "SHL001") == []
    assert run("a.sh", "#!/bin/bash\nDOCKERFILE=a\ndie no $DOCKERFFILE\n", "SHL001") == []


def test_a_script_beside_it_may_make_the_log_directory(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    job = SBATCH.format(log="logs/%j.out")
    assert run("a.sbatch", job, "SHL001") == ["info SHL001 3"]
    (tmp_path / "submit.sh").write_text("#!/bin/bash\nmkdir -p logs\nsbatch a.sbatch\n")
    assert run("a.sbatch", job, "SHL001") == []


def test_a_variable_of_the_file_beside_it_is_set(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nGPUS_PER_NODE=${GPU_PER_NODE}\ntorchrun --nproc_per_node=$GPUS_PER_NODE a.py\n"
    assert run("a.sh", text, "SHL001") == ["warning SHL001 2"] or run("a.sh", text, "SHL001") == ["warning SHL001 3"]
    (tmp_path / "env.conf").write_text("export GPU_PER_NODE=8\n")
    assert run("a.sh", text, "SHL001") == []


def test_two_nodes_of_one_machine_share_localhost(run) -> None:  # type: ignore[no-untyped-def]
    one = "CUDA_VISIBLE_DEVICES={g} torchrun --nnodes=2 --node-rank={r} --nproc-per-node=2 --master-addr=localhost a.py"
    both = "#!/bin/bash\n" + one.format(g="0,1", r=0) + " &\n" + one.format(g="2,3", r=1) + "\n"
    assert run("a.sh", both, "JOB009") == []
    assert run("a.sh", "#!/bin/bash\n" + one.format(g="0,1", r=0) + "\n", "JOB009") == ["info JOB009 2"]


def test_extends_of_other_programs_is_no_spec(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: _base.yaml\n")
    (tmp_path / "_base.yaml").write_text("script: a.py\nargs: {x: 1}\n")
    assert rows(tmp_path) == []


def test_placeholders_in_braces_are_placeholders(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "Region: us-east-2\nImage: {Os: ubuntu2204, CustomAmi: '{GROMACS_AMI}'}\nHeadNode:\n  InstanceType: c5.xlarge\n"
        "  Networking: {SubnetId: '{SUBNET_ID}'}\nScheduling:\n  Scheduler: slurm\n  SlurmQueues:\n  - Name: a\n"
        "    Networking: {SubnetIds: ['{SUBNET_ID}']}\n"
        "    ComputeResources: [{Name: b, InstanceType: c5.xlarge, MaxCount: 1}]\n"
    )
    assert not any(one.startswith("error") for one in run("a.yaml", text, "CFG"))


def test_one_process_needs_no_shared_memory(run) -> None:  # type: ignore[no-untyped-def]
    pod = POD.replace("WANDB_API_KEY", "X") % "x"
    assert run("a.yaml", pod, "K8S001") == ["info K8S001 10"]
    assert run("a.yaml", pod + "        command: [python, train_jax.py]\n", "K8S001") == []
    assert run("a.yaml", pod + "        command: [torchrun, train.py]\n", "K8S001") == ["warning K8S001 10"]


def test_a_batch_script_may_set_what_the_other_defaults(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "train.sh").write_text("NODE=${NODE:-1}\ntorchrun --nnodes=$NODE --nproc_per_node=8 a.py\n")
    job = "#!/bin/bash\n#SBATCH --nodes=2\n{}srun bash train.sh\n"
    assert run("a.sbatch", job.format("export NODE=$SLURM_NNODES\n"), "JOB016") == []
    assert run("a.sbatch", job.format(""), "JOB016") == ["error JOB016 3"]


def test_a_habit_of_one_file_is_one_finding(tmp_path: Path) -> None:
    script = "#!/bin/bash\ntorchrun --nproc_per_nodes=8 a.py\ntorchrun --rdzv_backends=c10d a.py\n"
    (tmp_path / "a.sh").write_text(script)
    [finding] = rows(tmp_path, "--select", "JOB013")
    assert [place["line"] for place in finding["also"]] == [3]
    whole = CliRunner().invoke(command, [str(tmp_path), "--format", "full", "--select", "JOB013", "--no-cache"])
    assert whole.stdout.count("error JOB013") == 2


def test_a_directory_that_was_made_counts_with_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job = tmp_path / "jobs" / "a.sbatch"
    job.parent.mkdir()
    job.write_text(SBATCH.format(log="logs/%j.out"))
    words = [str(job.parent), "--cache", "--format", "json", "--select", "SHL001"]
    assert len(json.loads(CliRunner().invoke(command, words).stdout)) == 1
    (job.parent / "logs").mkdir()
    assert json.loads(CliRunner().invoke(command, words).stdout) == []


def test_ntasks_wins_over_ntasks_per_node(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:1\n"
    assert run("a.sbatch", text + "srun python a.py\n", "JOB001") == []


def test_a_command_that_only_predicts_trains_on_nothing(run) -> None:  # type: ignore[no-untyped-def]
    text = "torchrun --nproc_per_node 2 run_glue.py --train_file a.json --validation_file a.json {} --max_steps 9\n"
    assert run("a.sh", text.format("--do_predict"), "JOB012") == []
    assert run("a.sh", text.format("--do_train --do_eval"), "JOB012") == ["info JOB012 1"]
