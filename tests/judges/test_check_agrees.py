"""On broken ParallelCluster files, what ParallelCluster's own validators find, `check` finds too. Each mistake is made
in a file that both accept; the validator that objects is named, and so is our rule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from judges.pcluster import ROOT, processes, validate_text
from judges.world import World
from trainwright.aws.facts import AwsFacts
from trainwright.check.engine import Selection, check
from trainwright.platforms.plan.tree import make_plan
from trainwright.spec.load import load
from trainwright.stacks.references import fill

pytestmark = pytest.mark.judge

Config = dict[str, Any]
Change = Callable[[Config], object]
LUSTRE = {"DeploymentType": "PERSISTENT_2", "StorageCapacity": 4800, "PerUnitStorageThroughput": 250}
DATABASE = {
    "Uri": "db.example.com:3306",
    "UserName": "slurm",
    "PasswordSecretArn": "arn:aws:secretsmanager:us-east-2:123456789012:secret:slurm-a1b2c3",
}


def queue(config: Config) -> Config:
    first: Config = config["Scheduling"]["SlurmQueues"][0]
    return first


def resource(config: Config) -> Config:
    first: Config = queue(config)["ComputeResources"][0]
    return first


def slurm(config: Config) -> Config:
    settings: Config = config["Scheduling"].setdefault("SlurmSettings", {})
    return settings


def lustre(mount: str = "/new", **settings: Any) -> Change:
    kept = {key: value for key, value in {**LUSTRE, **settings}.items() if value is not None}
    row = {"Name": "new", "MountDir": mount, "StorageType": "FsxLustre", "FsxLustreSettings": kept}
    return lambda config: config.setdefault("SharedStorage", []).append(row)


def ebs(mount: str, name: str = "volume") -> Change:
    row = {"Name": name, "MountDir": mount, "StorageType": "Ebs"}
    return lambda config: config.setdefault("SharedStorage", []).append(row)


def both(*changes: Change) -> Change:
    return lambda config: [change(config) for change in changes]


def block(config: Config) -> None:
    queue(config)["CapacityType"] = "CAPACITY_BLOCK"


def listed(config: Config) -> None:
    resource(config)["Instances"] = [{"InstanceType": resource(config).pop("InstanceType")}]


def other_type(name: str) -> Change:
    def change(config: Config) -> None:
        resource(config)["InstanceType"] = name
        resource(config).pop("CapacityReservationTarget", None)
        resource(config).pop("CustomSlurmSettings", None)

    return change


def no_placement(config: Config) -> None:
    queue(config)["Networking"].pop("PlacementGroup")
    resource(config).get("Networking", {}).pop("PlacementGroup", None)


MISTAKES: dict[str, tuple[Change, str, str]] = {
    "largest count below smallest": (
        lambda c: resource(c).update(MinCount=4, MaxCount=2),
        "ComputeResourceSizeValidator",
        "CAP001",
    ),
    "block with unequal counts": (
        both(block, lambda c: resource(c).update(MinCount=1, MaxCount=2)),
        "ComputeResourceSizeValidator",
        "CAP001",
    ),
    "no nodes at all": (lambda c: resource(c).update(MinCount=0, MaxCount=0), "ConfigSchemaValidator", "CAP001"),
    "block without an id": (
        both(block, lambda c: resource(c).pop("CapacityReservationTarget")),
        "CapacityTypeValidator",
        "CAP001",
    ),
    "reservation with a list": (listed, "CapacityReservationValidator", "CAP002"),
    "placement group on a block": (
        both(block, lambda c: queue(c)["Networking"].update(PlacementGroup={"Enabled": True})),
        "PlacementGroupCapacityTypeValidator",
        "CAP004",
    ),
    "queue in capitals": (lambda c: queue(c).update(Name="Train"), "NameValidator", "CFG003"),
    "queue named default": (lambda c: queue(c).update(Name="default"), "NameValidator", "CFG003"),
    "long resource name": (lambda c: resource(c).update(Name="a" * 26), "NameValidator", "CFG003"),
    "two resources of one name": (
        lambda c: queue(c)["ComputeResources"].append(copy.deepcopy(resource(c))),
        "DuplicateNameValidator",
        "CFG003",
    ),
    "EFA, placement not stated": (no_placement, "EfaPlacementGroupValidator", "NET001"),
    "EFA on a type without it": (other_type("g5.2xlarge"), "EfaValidator", "NET002"),
    "public address, many cards": (
        lambda c: queue(c)["Networking"].update(AssignPublicIp=True),
        "MultiNetworkInterfacesInstancesValidator",
        "NET005",
    ),
    "unknown key": (lambda c: resource(c).update(MaxCounts=3), "ConfigSchemaValidator", "CFG005"),
    "missing key": (lambda c: queue(c).pop("Name"), "ConfigSchemaValidator", "CFG005"),
    "system of the past": (lambda c: c["Image"].update(Os="ubuntu2004"), "ConfigSchemaValidator", "CFG005"),
    "metadata service of the future": (
        lambda c: c.update(Imds={"ImdsSupport": "v3.0"}),
        "ConfigSchemaValidator",
        "CFG005",
    ),
    "capacity of no kind": (lambda c: queue(c).update(CapacityType="RESERVED"), "ConfigSchemaValidator", "CFG005"),
    "fewer than no nodes": (lambda c: resource(c).update(MinCount=-1), "ConfigSchemaValidator", "CFG005"),
    "subnet that is no id": (
        lambda c: queue(c)["Networking"].update(SubnetIds=["subnet-12"]),
        "ConfigSchemaValidator",
        "CFG005",
    ),
    "placement group named and off": (
        lambda c: queue(c)["Networking"].update(PlacementGroup={"Enabled": False, "Name": "mine"}),
        "PlacementGroupNamingValidator",
        "NET001",
    ),
    "node with a name of theirs": (
        lambda c: slurm(c).update(CustomSlurmSettings=[{"NodeName": "a-st-1", "CPUs": 4}]),
        "CustomSlurmNodeNamesValidator",
        "SLU001",
    ),
    "type that does not exist": (other_type("p5.48xlrage"), "ConfigSchemaValidator", "CAP006"),
    "head and nodes of two kinds": (
        lambda c: c["HeadNode"].update(InstanceType="m7g.2xlarge"),
        "InstanceArchitectureCompatibilityValidator",
        "CAP006",
    ),
    "spot where there is none": (
        both(other_type("hpc6a.48xlarge"), lambda c: queue(c).update(CapacityType="SPOT")),
        "CapacityTypeValidator",
        "CAP001",
    ),
    "GPUDirect without EFA": (
        lambda c: resource(c).update(Efa={"Enabled": False, "GdrSupport": True}),
        "EfaValidator",
        "NET002",
    ),
    "no size": (lustre(StorageCapacity=None), "FsxStorageCapacityValidator", "STO001"),
    "settings of a file system that exists": (
        lustre(FileSystemId="fs-0a1b2c3d4e5f67890"),
        "ConfigSchemaValidator",
        "STO002",
    ),
    "size that is not sold": (lustre(StorageCapacity=5000), "FsxStorageCapacityValidator", "STO001"),
    "throughput of the other generation": (
        lustre(PerUnitStorageThroughput=200),
        "FsxStorageTypeOptionsValidator",
        "STO001",
    ),
    "scratch with a throughput": (lustre(DeploymentType="SCRATCH_2"), "FsxPersistentOptionsValidator", "STO002"),
    "persistent without a throughput": (
        lustre(PerUnitStorageThroughput=None),
        "FsxPersistentOptionsValidator",
        "STO002",
    ),
    "drive cache on SSD": (lustre(DriveCacheType="READ"), "FsxStorageTypeOptionsValidator", "STO002"),
    "hard disks of the wrong generation": (lustre(StorageType="HDD"), "FsxStorageTypeOptionsValidator", "STO002"),
    "export without import": (
        lustre(DeploymentType="SCRATCH_2", PerUnitStorageThroughput=None, ExportPath="s3://b/out"),
        "FsxS3Validator",
        "STO002",
    ),
    "backup of a linked file system": (
        lustre(
            DeploymentType="PERSISTENT_1",
            PerUnitStorageThroughput=200,
            ImportPath="s3://b",
            AutomaticBackupRetentionDays=7,
        ),
        "FsxBackupOptionsValidator",
        "STO002",
    ),
    "mount at /tmp": (ebs("/tmp"), "SharedStorageMountDirValidator", "STO006"),
    "mount at another's folder": (both(ebs("/one", "a"), ebs("/one", "b")), "DuplicateMountDirValidator", "STO006"),
    "two new file systems": (both(lustre("/one"), lustre("/two")), "NumberOfStorageValidator", "STO006"),
    "storage named default": (ebs("/one", "default"), "SharedStorageNameValidator", "STO006"),
    "six volumes": (both(*(ebs(f"/v{n}", f"v{n}") for n in range(6))), "NumberOfStorageValidator", "STO006"),
    "Prolog of one's own": (
        lambda c: slurm(c).update(CustomSlurmSettings=[{"Prolog": "/x"}]),
        "CustomSlurmSettingsValidator",
        "SLU001",
    ),
    "a queue's Nodes": (
        lambda c: queue(c).update(CustomSlurmSettings={"Nodes": "x"}),
        "CustomSlurmSettingsValidator",
        "SLU001",
    ),
    "a resource's Gres": (
        lambda c: resource(c).update(CustomSlurmSettings={"Gres": "gpu:8"}),
        "CustomSlurmSettingsValidator",
        "SLU001",
    ),
    "settings and a file of settings": (
        lambda c: slurm(c).update(
            CustomSlurmSettings=[{"MaxNodes": 3}], CustomSlurmSettingsIncludeFile="s3://b/slurm.conf"
        ),
        "CustomSlurmSettingsIncludeFileOnlyValidator",
        "SLU001",
    ),
    "accounting gathered twice": (
        lambda c: slurm(c).update(
            Database=DATABASE, CustomSlurmSettings=[{"JobAcctGatherType": "jobacct_gather/linux"}]
        ),
        "CustomSlurmSettingsValidator",
        "SLU001",
    ),
    "database with a scheme": (
        lambda c: slurm(c).update(Database={**DATABASE, "Uri": "mysql://db.example.com:3306"}),
        "DatabaseUriValidator",
        "SLU002",
    ),
    "GPU older than the driver": (other_type("p3dn.24xlarge"), "InstanceTypeBaseAMICompatibleValidator", "CAP005"),
}


@pytest.fixture(scope="module")
def world(pcluster_bin: Path) -> World:
    return World(processes().endpoint, make_plan(load(ROOT / "examples" / "p5-reservation.yaml")))


@pytest.fixture(scope="module")
def accepted(world: World) -> Config:
    """A file that both accept: p5 nodes on a reservation."""
    config: Config = yaml.safe_load(fill(world.plan.files["cluster.yaml"], world.build()))
    return config


def ours(config: Config, folder: Path, code: str, facts: AwsFacts | None = None) -> list[str]:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return [f.message for f in check([str(path)], Selection((code,)), {"aws": facts} if facts else None).findings]


@pytest.mark.parametrize("name", MISTAKES)
def test_check_finds_what_the_validators_find(name: str, accepted: Config, tmp_path: Path) -> None:
    change, validator, code = MISTAKES[name]
    assert ours(accepted, tmp_path, code) == []
    config = copy.deepcopy(accepted)
    change(config)
    messages = validate_text(yaml.safe_dump(config, sort_keys=False))
    assert validator in {m.validator_type for m in messages}, [(m.validator_type, m.text) for m in messages]
    assert ours(config, tmp_path, code), f"check is silent; ParallelCluster says: {messages}"


def _rsa_key(world: World, config: Config) -> None:
    world.client("ec2").create_key_pair(KeyName="old", KeyType="rsa")
    config["HeadNode"].setdefault("Ssh", {})["KeyName"] = "old"


def _deaf_group(world: World, config: Config) -> None:
    group = world._group(world.made["network"]["Vpc"], "deaf")
    queue(config)["Networking"].pop("AdditionalSecurityGroups", None)
    queue(config)["Networking"]["SecurityGroups"] = [group]


ASKING: dict[str, tuple[Callable[[World, Config], object], str, str]] = {
    "EFA over two zones": (
        lambda w, c: queue(c)["Networking"].update(SubnetIds=w.made["network"]["PrivateSubnets"].split(",")),
        "EfaMultiAzValidator",
        "NET004",
    ),
    "one type over two zones": (
        lambda w, c: (
            queue(c)["Networking"].update(SubnetIds=w.made["network"]["PrivateSubnets"].split(",")),
            resource(c).update(Efa={"Enabled": False}),
        ),
        "SingleInstanceTypeSubnetValidator",
        "NET004",
    ),
    "new file system, two zones": (
        lambda w, c: (
            queue(c)["Networking"].update(SubnetIds=w.made["network"]["PrivateSubnets"].split(",")),
            lustre()(c),
        ),
        "ManagedFsxMultiAzValidator",
        "STO002",
    ),
    "RSA key for Ubuntu": (_rsa_key, "KeyPairValidator", "SEC001"),
    "group that does not reach itself": (_deaf_group, "EfaSecurityGroupValidator", "NET003"),
    "more nodes than reserved": (
        lambda w, c: resource(c).update(MaxCount=500),
        "CapacityReservationSizeValidator",
        "CAP003",
    ),
    "another type than reserved": (
        lambda w, c: resource(c).update(InstanceType="p4d.24xlarge"),
        "CapacityReservationValidator",
        "CAP003",
    ),
    "subnet that gives out addresses": (
        lambda w, c: queue(c)["Networking"].update(SubnetIds=[c["HeadNode"]["Networking"]["SubnetId"]]),
        "MultiNetworkInterfacesInstancesValidator",
        "NET005",
    ),
}


@pytest.mark.parametrize("name", ASKING)
def test_with_aws_check_finds_what_the_validators_find(
    name: str, world: World, accepted: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", world.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    boto3.setup_default_session()
    change, validator, code = ASKING[name]
    assert ours(accepted, tmp_path, code, AwsFacts(world.region)) == []
    config = copy.deepcopy(accepted)
    change(world, config)
    messages = validate_text(yaml.safe_dump(config, sort_keys=False))
    assert validator in {m.validator_type for m in messages}, [(m.validator_type, m.text) for m in messages]
    assert ours(config, tmp_path, code, AwsFacts(world.region)), f"check is silent; ParallelCluster says: {messages}"
