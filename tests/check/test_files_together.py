"""Mistakes that two files make together, each of which is right by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported import rows

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
