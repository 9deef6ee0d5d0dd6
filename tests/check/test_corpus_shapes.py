"""Shapes of the judged corpus: (what it is, its name, its text, the findings it must give). Those without a finding
were reported wrongly, or to no use, by an earlier version."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check

IMAGE = "FROM {}\nRUN pip install torch==2.7.1\n"
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: manager}}
spec:
  template:
    spec:
      containers: [{{name: manager, image: {image}{more}}}]
"""
GPU = ", resources: {limits: {nvidia.com/gpu: 1}}"
SAVE = """import torch, torch.distributed as dist
dist.init_process_group("nccl")
loss.backward()
def save(path, rank):
    shard = f"{path}/rank_{rank}.pt"
    torch.save(state, shard)
save("/fsx", 0)
"""
GROUP = """Resources:
  {}:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: web
      SecurityGroupIngress: [{{IpProtocol: tcp, FromPort: 80, ToPort: 80, CidrIp: 0.0.0.0/0}}]
"""
SHAPES = [
    ("braces end a name", "a.sh", 'for subset in a b; do\n  sed "s/^/${subset}_/" x\n  echo "${subset}s"\ndone\n', []),
    ("a name with an underscore more", "a.sh", '_feats_type=raw\necho "${feats_type}"\n', []),
    ("set by name", "a.sh", 'vcword=1\nwords_by_ref cur cword\necho "$cword"\n', []),
    ("a misspelled name", "a.sh", 'checkpoint=/fsx/a\nls "$chekpoint"\n', ["SHL001 2"]),
    ("JSON that is built up", "a.sh", "CFG='{\"a\": 1'\nCFG=\"${CFG}}\"\n", []),
    ("an extra brace", "a.sh", 'DIR=/fsx/a\nls "${DIR}}"\n', ["SHL001 2"]),
    ("a template of directives", "a.sh", "#!/bin/bash\n${PARTITION_OPTION}\n#SBATCH --nodes=2\nsrun hostname\n", []),
    ("a script in a text", "a.sh", "write_script a.sh '#!/bin/bash\n#SBATCH --nodes=2\nsrun x\n'\n", []),
    ("a template of Jinja", "a.sh", "#!/bin/bash\n#SBATCH --nodes=2\n{{GIVEN_NODE}}\n#SBATCH --exclusive\n", []),
    ("late directives", "a.sh", "#!/bin/bash\nset -e\n#SBATCH --nodes=2\n#SBATCH --exclusive\n", ["SHL001 3"]),
    ("swapped letters", "a.sh", "head=$(hostname)\nssh \"$haed\"\n", ["SHL001 2"]),
    ("a token for every rank", "a.sh", "torchrun train.py --hf_token $HF_TOKEN\n", ["SEC005 1"]),
    ("no token", "a.sh", "torchrun train.py --hf_token None --wandb_key /run/secrets/wandb\n", []),
    ("data from a branch", "a.sh", "wget https://raw.githubusercontent.com/o/r/main/words.csv\n", []),
    ("a script from a branch", "a.sh", "curl -s https://raw.githubusercontent.com/o/r/main/get | bash\n", ["IMG002 1"]),
    ("a repository to choose", "Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.04-py3\nARG URL=https://github.com/o/r\n"
     "RUN git clone ${URL} r && pip install ./r\n", []),
    ("an image of a dashboard", "Dockerfile", "FROM grafana/grafana\nCOPY a.json /etc\n", []),
    ("an image for training", "Dockerfile", IMAGE.format("pytorch/pytorch"), ["IMG003 1"]),
    ("an image with its version in its name", "Dockerfile", IMAGE.format("pytorch/manylinux-cuda116"), []),
    ("an image that is built here", "Dockerfile", IMAGE.format("my_base_image"), []),
    ("a controller", "a.yaml", DEPLOYMENT.format(image="controller:latest", more=""), []),
    ("a placeholder", "a.yaml", DEPLOYMENT.format(image="__VLLM_IMAGE__", more=GPU), []),
    ("a server on GPUs", "a.yaml", DEPLOYMENT.format(image="vllm/vllm-openai:latest", more=GPU), ["IMG003 7"]),
    ("a file per rank", "train.py", SAVE, []),
    ("a test of a framework", "test_train.py", SAVE.replace("rank", "step"), []),
    ("one file for all ranks", "train.py", SAVE.replace("rank", "step"), ["PYT002 6"]),
    ("a load balancer", "a.yaml", GROUP.format("LoadBalancerGroup"), []),
    ("nodes open on a web port", "a.yaml", GROUP.format("NodeGroup"), ["SEC004 6"]),
    ("libfabric without NCCL", "a.sh", "export FI_EFA_ENABLE_SHM_TRANSFER=0\n./ps_server\n", []),
    ("libfabric under NCCL", "a.sh", "export FI_EFA_ENABLE_SHM_TRANSFER=0\ntorchrun train.py\n", ["ENV001 1"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), [shape[1:] for shape in SHAPES], ids=[s[0] for s in SHAPES])
def test_shape(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [f"{f.code} {f.span.line}" for f in check([str(path)]).findings] == expected
