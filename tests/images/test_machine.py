"""Machine images as files: what is written, what is refused. The judges are in tests/judges/test_machine_images.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.catalog.versions import version_set
from trainwright.cli.image import command
from trainwright.errors import UserError
from trainwright.images.machine import Machine, first_system, least_driver, machine_files


def test_the_roles_get_the_set_and_the_driver_that_its_cuda_needs() -> None:
    files = machine_files(Machine("dlami", "ubuntu2404", version_set("previous")))
    given = yaml.safe_load(files["ansible/group_vars/all.yml"])
    assert given["version_set"]["efa"] == given["efa_installer"] == "1.43.2"
    assert given["nvidia_least_driver"] == least_driver(version_set("previous")) == "525.60.13"
    assert least_driver(version_set()) == "580"
    assert "build-image.yaml" not in files
    assert "pcluster" not in files["build.sh"]


def test_a_parallelcluster_image_carries_the_tag_that_clusters_ask_for() -> None:
    files = machine_files(Machine("parallelcluster", "alinux2023", version_set(), bucket="s3://my-bucket/a"))
    assert '"parallelcluster:version" = "3.16.1"' in files["image.pkr.hcl"]
    assert '"aws-parallelcluster-3.16.1-amzn2023-hvm-x86_64-*"' in files["image.pkr.hcl"]
    config = yaml.safe_load(files["build-image.yaml"])
    assert config["Build"]["Installation"]["NvidiaSoftware"]["Enabled"] is True  # without it, no enroot and no pyxis
    assert config["Build"]["ParentImage"] == "arn:aws:imagebuilder:us-east-2:aws:image/amazon-linux-2023-x86/x.x.x"
    assert config["Build"]["Components"] == [{"Type": "script", "Value": "s3://my-bucket/a/apply.sh"}]


def test_an_image_is_tagged_with_what_is_installed_and_not_with_the_driver_of_the_base() -> None:
    """The roles take any driver from 580 on; the tag said 580.126.09 of every one."""
    for base in ("parallelcluster", "dlami", "eks", "neuron"):
        files = machine_files(Machine(base, first_system(base), version_set()))
        tags = set(re.findall(r'"trainwright:(\w+)" =', files["image.pkr.hcl"]))
        assert not tags & {"driver", "cuda", "torch", "nccl"}
        assert {"set", "version", "efa"} <= tags
        assert ("enroot" in tags) == (base == "dlami")  # ParallelCluster's base has its own
    [parallelcluster, applied] = [
        yaml.safe_load(
            machine_files(Machine("parallelcluster", "alinux2023", version_set(), bucket=b))["build-image.yaml"]
        )
        for b in ("", "s3://my-bucket/a")
    ]
    assert {tag["Key"] for tag in parallelcluster["Image"]["Tags"]} == {"trainwright:set", "trainwright:version"}
    assert "trainwright:efa" in {tag["Key"] for tag in applied["Image"]["Tags"]}  # the roles are applied
    assert "/etc/trainwright-driver" in files["ansible/roles/nvidia/tasks/main.yml"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base": "parallelclutser"}, "no machine base"),
        ({"base": "eks", "os": "ubuntu2204"}, "eks has no image for 'ubuntu2204'"),
        ({"region": 'us-east-2"\n}'}, "is not a region"),
        ({"parent": "ami-0123; reboot"}, "is not a parent image"),
        ({"bucket": "s3://my-bucket/$(id)"}, "is not an S3 address"),
        ({"base": "dlami", "parent": "ami-0123456789abcdef0"}, "are for `pcluster build-image`"),
    ],
)
def test_what_is_refused(values: dict[str, str], message: str) -> None:
    base = values.get("base", "parallelcluster")
    with pytest.raises(UserError, match=message):
        Machine(**{"os": "ubuntu2204", "set": version_set(), **values, "base": base})


def test_the_verb_writes_the_folder_and_the_same_again(tmp_path: Path) -> None:
    arguments = ["machine", "--base", "neuron", "--out", str(tmp_path / "n"), "--json"]
    facts = [json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).stdout) for _ in range(2)]
    assert facts[0] == facts[1]
    assert facts[0]["os"] == first_system("neuron")
    assert (tmp_path / "n/build.sh").stat().st_mode & 0o111
    assert (tmp_path / "n/ansible/roles/neuron/tasks/main.yml").is_file()
