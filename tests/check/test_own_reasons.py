"""Findings of rules that cover several mistakes: the reason that is shown is the one of the mistake that was found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check import reasons
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

PARALLELCLUSTER = """{comment}Region: us-east-2
Image: {{Os: ubuntu2204}}
HeadNode:
  InstanceType: m5.xlarge
  DisableSimultaneousMultithreading: {head}
  Networking: {{SubnetId: subnet-0123456789abcdef0}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: train
      ComputeResources:
        - Name: a
          InstanceType: {type}
          DisableSimultaneousMultithreading: {off}
          MinCount: 2
          MaxCount: 2
          Efa: {{Enabled: {efa}}}
      Networking:
        SubnetIds: [subnet-0123456789abcdef0]
        PlacementGroup: {{Enabled: {group}}}
"""


def cluster(**values: str) -> str:
    defaults = {"comment": "", "head": "false", "type": "p4d.24xlarge", "off": "false", "efa": "true", "group": "true"}
    return PARALLELCLUSTER.format(**defaults | values)


NETWORK = (
    "AWSTemplateFormatVersion: 2010-09-09\nParameters:\n  {}\nResources:\n  Net: {{Type: 'AWS::EC2::VPC'}}\n  {}\n"
)
USED = "Zone: {Type: String}"
POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: a
      image: a:1
      resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}, requests: {vpc.amazonaws.com/efa: 4}}
"""
SCRIPT = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group()
model = DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters())
model(1).backward()
"""
CASES = [
    ("IMG004", "a.yaml", POD, reasons.NO_HUGE_PAGES),
    ("IMG004", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN rm -rf /opt/hpcx && ./efa_installer.sh -y\n",
     reasons.KERNEL_MODULES),
    ("IMG004", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN ./efa_installer.sh -y --skip-kmod\n",
     reasons.OTHER_TRANSPORT),
    ("IMG004", "a.sh", "#!/bin/bash\ndocker run --gpus all a:1 torchrun --nproc_per_node=8 t.py --num_workers 8\n",
     reasons.FULL_SHARED_MEMORY),
    ("CFN001", "a.yaml", NETWORK.format("Az: {Type: String}", ""), reasons.UNUSED_PARAMETER),
    ("CFN001", "a.yaml", NETWORK.format("Az: {Type: String, Description: optional}",
     "Out: {Type: 'AWS::EC2::Subnet', Properties: {VpcId: !Ref Net, AvailabilityZone: !Ref Az}}"), reasons.NO_DEFAULT),
    ("CFN001", "a.yaml", NETWORK.format(USED,
     "Out: {Type: 'AWS::EC2::Subnet', Properties: {VpcId: Net, AvailabilityZone: !Ref Zone}}"), reasons.PLAIN_TEXT_ID),
    ("CFN001", "a.yaml", NETWORK.format(USED,
     "Out: {Type: 'AWS::EC2::Subnet', Properties: {VpcId: !Ref Netz, AvailabilityZone: !Ref Zone}}"),
     reasons.UNRESOLVED),
    ("CFN001", "a.yaml", NETWORK.format(USED,
     "Out: {Type: 'AWS::EC2::Subnet', Properties: {VpcId: !Ref Out, AvailabilityZone: !Ref Zone}}"), reasons.CIRCULAR),
    ("CFN001", "a.yaml", NETWORK.format(USED,
     "Out: {Type: 'AWS::EC2::Instance', Properties: {ImageId: /aws/a, AvailabilityZone: !Ref Zone}}"),
     reasons.PATH_AS_IMAGE),
    ("NET001", "a.yaml", cluster(group="false"), reasons.FAR_APART),
    ("NET002", "a.yaml", cluster(type="g5.xlarge"), reasons.REFUSED_BY_EC2),
    ("NET002", "a.yaml", cluster(efa="false"), "100 of the 400 Gbps"),
    ("IMG002", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.01-py3\n"
     "RUN git clone https://github.com/a/nccl\nRUN make\n",
     reasons.NEWEST_COMMIT),
    ("IMG002", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.01-py3\n"
     "RUN git clone https://github.com/a/nccl && cd nccl && git checkout -b v2.1.0\nRUN make\n",
     reasons.BRANCH_NAMED_AS_A_TAG),
    ("IMG006", "Dockerfile", "FROM ubuntu:24.04\nRUN pip install torch==2.4.0 torchvision==0.16.0\n",
     reasons.REFUSED_BY_PIP),
    ("IMG006", "Dockerfile", "FROM ubuntu:24.04\nRUN pip install torch==2.4.0\nRUN pip install torchvision==0.16.0\n",
     reasons.TORCH_REPLACED),
    ("IMG006", "Dockerfile", "FROM ubuntu:24.04\nRUN pip install torchvision==0.16.0\nRUN pip install torch==2.4.0\n",
     reasons.LEFT_BEHIND),
    ("DSP001", "ds.json", '{"train_micro_batch_size_per_gpu": 1, "gradient_cliping": 1, "zero_optimization": {}}',
     reasons.IGNORED_BY_DEEPSPEED),
    ("DSP001", "ds.json", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_param": '
     '{"device": "cpu"}}}', reasons.PARAMETERS_STAY),
    ("CFG006", "a.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n"
     "  fsdp_sharding_stratgy: FULL_SHARD\n", reasons.IGNORED_BY_ACCELERATE),
    ("PYT004", "a.py", SCRIPT + "sampler = DistributedSampler([1])\nDataLoader([1], sampler=sampler, shuffle=True)\n",
     reasons.SAMPLER_AND_SHUFFLE),
    ("PYT003", "a.py", SCRIPT + "if dist.get_rank() == 0:\n    torch.save({'model': model.state_dict()}, 'a')\n"
     "state = torch.load('a')\noptimizer.load_state_dict(state['optimizer'])\n", reasons.KEY_NOT_SAVED),
    ("IMG005", "a.sh", "#!/bin/bash\nEFA_VERSION=1.43.2\ncurl -O https://efa-installer.amazonaws.com/"
     "aws-efa-installer-1.43.2.tar.gz\ngit clone --branch v1.7.2-aws https://github.com/aws/aws-ofi-nccl\n",
     reasons.TWO_PLUGINS),
]  # fmt: skip


@pytest.mark.parametrize(("code", "name", "text", "why"), CASES)
def test_the_reason_is_that_of_the_mistake(run: Run, code: str, name: str, text: str, why: str) -> None:
    whys = [finding.why for finding in run(name, text, code)]
    assert len(whys) == 1, (code, text, whys)
    assert why in whys[0]


@pytest.mark.parametrize(
    ("values", "cpus", "fix"),
    [
        ({}, 96, "add CustomSlurmSettings: {Sockets: 2, CoresPerSocket: 24, ThreadsPerCore: 2}"),
        ({"off": "true"}, 48, "add CustomSlurmSettings: {Sockets: 2, CoresPerSocket: 24}"),
        ({"head": "true"}, 96, "add CustomSlurmSettings: {Sockets: 2, CoresPerSocket: 24, ThreadsPerCore: 2}"),
        ({"type": "p5.48xlarge"}, 192, "add CustomSlurmSettings: {Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}"),
    ],
)
def test_sockets_are_those_of_the_queue(run: Run, values: dict[str, str], cpus: int, fix: str) -> None:
    (finding,) = run("a.yaml", cluster(**values), "SLU003")
    assert f"each of the {cpus} CPUs" in finding.message
    assert (finding.fix, f"{cpus} sockets" in finding.why) == (fix, True)


def test_settings_that_the_stated_version_lacks_are_not_its_fix(run: Run) -> None:
    (finding,) = run("a.yaml", cluster(comment="# ParallelCluster 3.1\n"), "SLU003")
    assert finding.fix.startswith("bind the ranks")
    assert "from ParallelCluster 3.6 on" in finding.fix
