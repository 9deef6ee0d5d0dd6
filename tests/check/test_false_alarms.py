"""Files of the kinds found in public repositories that earlier versions reported wrongly: each is right, or wrong for
another reason, and the named rule must say exactly what the test expects."""

from __future__ import annotations

import pytest
from reported import shown

SBATCH = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes={nodes}
{more}
"""


def test_job009_accepts_a_missing_port_on_exclusive_nodes(run) -> None:  # type: ignore[no-untyped-def]
    launch = "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$(hostname) train.py\n"
    exclusive = SBATCH.format(nodes=2, more="#SBATCH --exclusive") + launch
    assert shown(run("a.sbatch", exclusive, "JOB009")) == []
    whole = SBATCH.format(nodes=2, more="#SBATCH --gpus-per-node=8") + launch
    assert shown(run("b.sbatch", whole, "JOB009")) == []
    shared = SBATCH.format(nodes=2, more="#SBATCH --gpus-per-node=1") + launch.replace("node=8", "node=1")
    assert shown(run("c.sbatch", shared, "JOB009")) == ["warning JOB009 5"]


def test_job009_accepts_the_free_port_idiom(run) -> None:  # type: ignore[no-untyped-def]
    line = "torchrun --nnodes={n} --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 train.py\n"
    single = SBATCH.format(nodes=1, more="") + line.format(n=1)
    assert shown(run("a.sbatch", single, "JOB009")) == []
    assert shown(run("b.sh", "#!/bin/bash\n" + line.replace("--nnodes={n} ", ""), "JOB009")) == []
    several = SBATCH.format(nodes=2, more="#SBATCH --exclusive") + "srun " + line.format(n=2)
    assert shown(run("c.sbatch", several, "JOB009")) == ["warning JOB009 5"]


BATCH = """Region: us-east-2
Image: {Os: alinux2}
HeadNode:
  InstanceType: m5.2xlarge
  Networking: {SubnetId: subnet-0a1b2c3d4e5f67890}
Scheduling:
  Scheduler: awsbatch
  AwsBatchQueues:
    - Name: queue1
      Networking: {SubnetIds: [subnet-0a1b2c3d4e5f67891]}
      ComputeResources:
        - {Name: c5, InstanceTypes: [c5.xlarge], MinvCpus: 0, DesiredvCpus: 4, MaxvCpus: 16}
"""


def test_cfg005_reads_awsbatch_and_older_versions(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", BATCH, "CFG005")) == ["info CFG005 2"]  # 3.16 accepts neither alinux2 nor awsbatch
    assert shown(run("b.yaml", "# for ParallelCluster 3.5\n" + BATCH, "CFG005")) == []
    old = BATCH.replace("alinux2", "ubuntu1804")
    [finding] = run("c.yaml", old, "CFG005")
    assert "; 3.6 does" in finding.message
    [finding] = run("d.yaml", "# ParallelCluster 3.9\n" + old, "CFG005")
    assert (finding.span.line, finding.level) == (3, "warning")
    assert "3.9" in finding.message


def test_cfg005_reports_a_misspelled_key_once(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", BATCH.replace("HeadNode", "HeadNodes"), "CFG005")) == [
        "info CFG005 2",
        "error CFG005 3",
    ]


LAUNCH_TEMPLATE = """AWSTemplateFormatVersion: '2010-09-09'
Parameters:
  CapacityId: {Type: String, Default: ''}
  GroupArn: {Type: String, Default: ''}
Conditions:
  HasId: !Not [!Equals [!Ref CapacityId, '']]
Resources:
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        InstanceType: p5.48xlarge
        MetadataOptions: {HttpTokens: required}
        CapacityReservationSpecification:
          CapacityReservationTarget:
            CapacityReservationId: !If [HasId, !Ref CapacityId, !Ref AWS::NoValue]
            CapacityReservationResourceGroupArn: !If [HasId, !Ref AWS::NoValue, !Ref GroupArn]
  Nodes:
    Type: AWS::EKS::Nodegroup
    Properties:
      ClusterName: one
      NodeRole: role
      Subnets: [subnet-0a1b2c3d4e5f67890]
      LaunchTemplate: {Id: !Ref Template}
"""


def test_cap002_accepts_a_choice_between_reservation_and_group(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", LAUNCH_TEMPLATE, "CAP002")) == []
    both = LAUNCH_TEMPLATE.replace("!If [HasId, !Ref CapacityId, !Ref AWS::NoValue]", "cr-0a1b2c3d4e5f67890")
    both = both.replace("!If [HasId, !Ref AWS::NoValue, !Ref GroupArn]", "!Ref GroupArn")
    assert shown(run("b.yaml", both, "CAP002")) == ["error CAP002 17"]


def test_sec003_needs_a_key_and_not_only_its_header(run) -> None:  # type: ignore[no-untyped-def]
    echo = '#!/bin/bash\nif grep -q "{} PRIVATE KEY-----" key.pem; then echo "-----BEGIN RSA PRIVATE KEY-----"; fi\n'
    assert shown(run("a.sh", echo.format("-----BEGIN RSA"), "SEC003")) == []
    body = "MIIEpAIBAAKCAQEA" + "q8Zk3b" * 8
    assert shown(
        run("b.sh", f"#!/bin/bash\ncat <<EOF\n{'-----BEGIN RSA'} PRIVATE KEY-----\n{body}\nEOF\n", "SEC003")
    ) == ["error SEC003 3"]


def test_sec003_knows_the_accounts_of_aws(run) -> None:  # type: ignore[no-untyped-def]
    published = 580_247_275_000 + 435  # of AWS's own Lambda layers
    line = "#!/bin/bash\naws lambda get --name arn:aws:lambda:us-east-1:{}:layer:LambdaInsightsExtension:14\n"
    assert shown(run("a.sh", line.format(published), "SEC003")) == []
    assert shown(run("b.sh", line.format(published + 1), "SEC003")) == ["info SEC003 2"]


def test_slu002_takes_a_null_database_for_none(run) -> None:  # type: ignore[no-untyped-def]
    text = BATCH.replace("awsbatch", "slurm") + "  SlurmSettings:\n    Database: null\n"
    assert shown(run("a.yaml", text, "SLU002")) == []


POD = """apiVersion: v1
kind: Pod
metadata: {{name: warm}}
spec:
  containers:
    - name: hold
      image: {image}
      resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


def test_k8s001_leaves_pause_containers_alone(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("a.yaml", POD.format(image="registry.k8s.io/pause:3.9"), "K8S001")) == []
    assert shown(run("b.yaml", POD.format(image="nvcr.io/nvidia/pytorch:25.03-py3"), "K8S001")) == ["info K8S001 8"]


def test_env001_says_what_a_misspelled_variable_is(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\nexport FI_PROVIDER=efa\nexport RDMAV_FORK_SAFE_=1\nsrun python train.py\n"
    [finding] = [f for f in run("a.sh", text, "ENV001") if f.span.line == 3]
    assert "RDMAV_FORK_SAFE" in finding.fix
    assert "kernel" not in finding.message


def test_job011_believes_that_nothing_is_saved(run) -> None:  # type: ignore[no-untyped-def]
    line = "torchrun --nproc_per_node=8 t.py --output_dir /tmp/o --save_strategy {} --save_steps 500 --max_steps 100\n"
    text = SBATCH.format(nodes=2, more="#SBATCH --exclusive") + "srun " + line
    assert shown(run("a.sbatch", text.format("no"), "JOB011")) == []
    assert shown(run("b.sbatch", text.format("steps"), "JOB011")) == ["error JOB011 5", "info JOB011 5"]


def test_sto006_counts_raid_apart_from_volumes(run) -> None:  # type: ignore[no-untyped-def]
    volume = "  - {{Name: v{0}, StorageType: Ebs, MountDir: /v{0}, EbsSettings: {{Size: 100}}}}\n"
    raid = "  - {Name: raid, StorageType: Ebs, MountDir: /raid, EbsSettings: {Raid: {Type: 0, NumberOfVolumes: 2}}}\n"
    text = BATCH.replace("awsbatch", "slurm") + "SharedStorage:\n" + "".join(volume.format(n) for n in range(5))
    assert shown(run("a.yaml", text + raid, "STO006")) == []
    assert shown(run("b.yaml", text + volume.format(5), "STO006")) == ["error STO006 19"]
    assert shown(run("c.yaml", text + raid + raid.replace("raid", "more"), "STO006")) == ["error STO006 20"]


@pytest.mark.parametrize(("size", "word"), [("8388608", "GPU memory"), ("2097152", "smaller")])
def test_env002_knows_a_smaller_buffer_from_a_larger(run, size: str, word: str) -> None:  # type: ignore[no-untyped-def]
    [finding] = run("a.sh", f"#!/bin/bash\nexport NCCL_BUFFSIZE={size}\nsrun python train.py\n", "ENV002")
    assert word in finding.message


CLONE = """FROM nvcr.io/nvidia/pytorch:25.03-py3
RUN git clone https://github.com/NVIDIA/apex && cd apex && git checkout {} && pip install .
"""


def test_img002_reads_the_start_point_of_a_branch(run) -> None:  # type: ignore[no-untyped-def]
    assert shown(run("Dockerfile", CLONE.format("-b patched 22.04.01"), "IMG002")) == []
    assert shown(run("Dockerfile", CLONE.format("-b patched 7b73b12361068a10b0f44844534613f252a5ea75"), "IMG002")) == []
    inside = CLONE.replace("cd apex && git checkout", "git -C apex -c advice.detachedHead=false checkout")
    assert shown(run("Dockerfile", inside.format("22.04.01"), "IMG002")) == []
    [finding] = run("Dockerfile", CLONE.format("-b v22.04"), "IMG002")
    assert "creates a branch" in finding.message
    [finding] = run("Dockerfile", CLONE.format("-b my-patches"), "IMG002")
    assert "without a tag or commit" in finding.message


PLACEHOLDERS = """Region: us-east-2
Image: {Os: ubuntu2204}
HeadNode:
  InstanceType: m5.2xlarge
  Networking: {SubnetId: PLACEHOLDER_PUBLIC_SUBNET}
  Ssh: {KeyName: %s}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: cpu
      Networking: {SubnetIds: [%s]}
      ComputeResources: [{Name: c5, InstanceType: c5.4xlarge, MaxCount: 8}]
"""


def test_cfg001_is_one_finding_and_milder_in_templates(run) -> None:  # type: ignore[no-untyped-def]
    mostly_real = PLACEHOLDERS % ("my-key", "subnet-0a1b2c3d4e5f67890")
    [finding] = run("cluster.yaml", mostly_real, "CFG001")
    assert (finding.level, finding.span.line) == ("error", 5)
    template = PLACEHOLDERS % ("<your-key>", "PLACEHOLDER_PRIVATE_SUBNET")
    [finding] = run("cluster.yaml", template, "CFG001")
    assert finding.level == "info"
    assert "PLACEHOLDER_PRIVATE_SUBNET" in finding.message
    assert shown(run("cluster.yaml.template", mostly_real, "CFG001")) == ["info CFG001 5"]


def test_env003_does_not_take_a_home_folder_as_proof_of_eth(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n# Runs on p5.48xlarge\n#SBATCH --nodes=2\nexport NCCL_SOCKET_IFNAME=eth0\n"
    text += "cd /home/ec2-user\nsrun python train.py\n"
    assert shown(run("a.sbatch", text, "ENV003")) == ["info ENV003 4"]
