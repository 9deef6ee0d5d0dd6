"""Patterns of packages and repositories that no rule had seen (sets F and T of docs/check.md): what was noise or false
there, and beside it what must still be found. Each sample is written for this test and holds the pattern only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.cli.check import command


@pytest.fixture
def run(tmp_path: Path):  # type: ignore[no-untyped-def]
    def findings(name: str, text: str, *codes: str) -> list[str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return shown(check([str(path)], Selection(select=codes)).findings)

    return findings


def shown(findings: list[Finding]) -> list[str]:
    return [f"{f.level} {f.code} {f.span.line}" for f in findings]


def rows(folder: Path, *options: str) -> list[dict[str, str]]:
    answer = CliRunner().invoke(command, [str(folder), "--format", "json", "--no-cache", *options])
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


SBATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --output={log}\nsrun hostname\n"


def test_one_cause_in_several_files_of_a_directory_is_one_finding(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.sbatch").write_text(SBATCH.format(log=f"logs/{name}-%j.out"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/d.sbatch").write_text(SBATCH.format(log="out/%j.out"))
    first, second = rows(tmp_path, "--select", "SHL001")
    assert first["message"].endswith("(also b.sbatch:3, c.sbatch:3)")
    assert second["file"].endswith("d.sbatch")
    annotated = CliRunner().invoke(command, [str(tmp_path), "--format", "github", "--select", "SHL001", "--no-cache"])
    assert annotated.stdout.count("::warning") == 4  # beside every line


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
    assert run("a.py", SCRIPT.format(body=unguarded), "PYT002") == ["warning PYT002 9"]


def test_saves_of_one_script_are_one_finding(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT.format(body="torch.save(a, 'a.pt')\ntorch.save(b, 'b.pt')"))
    [finding] = rows(tmp_path, "--select", "PYT002")
    assert finding["message"].endswith("(also line 5)")


def test_a_dataset_that_may_divide_itself_is_not_reported(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(context), batch_size=8)"), "PYT001") == []
    assert run("a.py", SCRIPT.format(body="loader = DataLoader(FlinkSource(c), shuffle=False)"), "PYT001") == []
    shuffled = "loader = DataLoader(MyData(args), batch_size=8, shuffle=True)"
    assert run("a.py", SCRIPT.format(body=shuffled), "PYT001") == ["warning PYT001 4"]
    local = "class MyData:\n    def __getitem__(self, i): return i\nloader = DataLoader(MyData(args), batch_size=8)"
    assert run("a.py", SCRIPT.format(body=local), "PYT001") == ["warning PYT001 6"]


RESUME = (
    'opts = [torch.optim.AdamW(p)]\nif resume:\n    ck = torch.load("a.pt")\nif rank == 0:\n    torch.save({}, "a.pt")'
)


def test_optimizers_may_be_saved_in_a_list(run) -> None:  # type: ignore[no-untyped-def]
    saved = '{{"model": m, "optimizers": [o.state_dict() for o in opts]}}'.replace("{{", "{").replace("}}", "}")
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", saved)), "PYT003") == []
    assert run("a.py", SCRIPT.format(body=RESUME.replace("{}", '{"model": m}')), "PYT003") == ["warning PYT003 8"]


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
        "warning K8S001 10",  # shared memory
        "error SEC003 13",
    ]
    assert "warning K8S001 13" in run("a.yaml", POD % "local-secret", "K8S001", "SEC003")


def test_latest_is_a_warning_where_several_nodes_pull_it(run) -> None:  # type: ignore[no-untyped-def]
    assert run("a.yaml", POD % "x", "IMG003") == ["info IMG003 9"]
    job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n" + (
        "    Worker:\n      replicas: 4\n      template:\n        spec:\n          containers:\n"
        "          - {name: pytorch, image: 'example.com/train:latest', resources: {limits: {nvidia.com/gpu: 8}}}\n"
    )
    assert run("b.yaml", job, "IMG003") == ["warning IMG003 11"]
    assert run("Dockerfile", "FROM nvidia/cuda AS a\nFROM busybox\nRUN pip install torch\n", "IMG003") == [
        "warning IMG003 1",
        "info IMG003 2",
    ]


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
    assert run("a.yaml", BUCKET.format(name="DataBucket"), "STO007") == ["warning STO007 3"]


def test_names_of_a_template_without_nodes_are_cfn_lints(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  Nat:\n    Type: AWS::EC2::NatGateway\n"
        "    Properties: {SubnetId: !Ref PublicSubnet}\n"
    )
    assert run("a.yaml", text, "CFN001") == []
    nodes = "  Nodes:\n    Type: AWS::EC2::LaunchTemplate\n    Properties: {LaunchTemplateData: {ImageId: ami-1}}\n"
    assert run("a.yaml", text + nodes, "CFN001") == ["error CFN001 5"]
