"""A moto server that knows a little more of AWS than moto does: capacity reservations, FSx life cycles and volumes, and
ParallelCluster's own images. Run as `python moto_extended.py READY_FILE`; it takes a free port and writes it there.

Each addition stands in for an API that moto 5.2 lacks; nothing of what moto has is replaced but FSx identifiers, which
are too short for ParallelCluster's schema, and the check that refuses ephemeral disks in a launch template."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

PCLUSTER = "3.16.1"
SYSTEMS = ("ubuntu-2204-lts-hvm", "ubuntu-2404-lts-hvm", "amzn2023-hvm", "rhel8-hvm", "rhel9-hvm")
# Images that the example specs name as their own.
OWN_IMAGES = ("ami-0123456789abcdef0", "ami-0fedcba9876543210")
ACCOUNT = "123456789012"

RESERVATIONS: dict[str, dict[str, Any]] = {}
GROUPS: dict[str, dict[str, None]] = {}  # resource group -> reservations, in order
VOLUMES: dict[str, str] = {}  # volume -> file system


def images_file(folder: Path) -> Path:
    """moto's own images and those of ParallelCluster, as the file that MOTO_AMIS_PATH names."""
    import moto

    bundled = Path(moto.__file__).parent / "ec2" / "resources" / "amis.json.gz"
    images = json.loads(gzip.decompress(bundled.read_bytes()))[:30]
    for number, system in enumerate(SYSTEMS):
        for arch_number, arch in enumerate(("x86_64", "arm64")):
            name = f"aws-parallelcluster-{PCLUSTER}-{system}-{arch}-202606010000"
            images.append(_image(f"ami-0aa{number}{arch_number}000000000000", name, arch, "247102896272"))
    images += [_image(ami, f"own-{ami}", "x86_64", ACCOUNT) for ami in OWN_IMAGES]
    path = folder / "amis.json"
    path.write_text(json.dumps(images))
    return path


def _image(ami: str, name: str, arch: str, owner: str) -> dict[str, Any]:
    return {
        "ami_id": ami,
        "architecture": arch,
        "creation_date": "2026-06-01T00:00:00.000Z",
        "description": "ParallelCluster image",
        "hypervisor": "xen",
        "image_location": f"amazon/{name}",
        "image_type": "machine",
        "name": name,
        "owner_id": owner,
        "platform": None,
        "public": True,
        "root_device_name": "/dev/sda1",
        "root_device_type": "ebs",
        "sriov": "simple",
        "state": "available",
        "virtualization_type": "hvm",
    }


def add_reservations() -> None:
    """Create and DescribeCapacityReservations. The client token is `id/type/group`, so that the id a spec names can be
    made to exist, as a Capacity Block (type capacity-block) or as the member of a resource group."""
    from moto.core.responses import ActionResult
    from moto.ec2.responses import EC2Response

    def create(self: Any) -> Any:
        token = self._get_param("ClientToken") or f"cr-{uuid.uuid4().hex[:17]}/default/"
        identity, kind, group = token.split("/")
        GROUPS.setdefault(group, {})[identity] = None
        count = int(self._get_param("InstanceCount") or 1)
        RESERVATIONS[identity] = {
            "CapacityReservationId": identity,
            "CapacityReservationArn": f"arn:aws:ec2:{self.region}:{ACCOUNT}:capacity-reservation/{identity}",
            "InstanceType": self._get_param("InstanceType"),
            "InstancePlatform": self._get_param("InstancePlatform") or "Linux/UNIX",
            "AvailabilityZone": self._get_param("AvailabilityZone"),
            "TotalInstanceCount": count,
            "AvailableInstanceCount": count,
            "InstanceMatchCriteria": self._get_param("InstanceMatchCriteria") or "open",
            "ReservationType": kind,
            "State": "active",
            "Tenancy": "default",
            "OwnerId": ACCOUNT,
        }
        return ActionResult({"CapacityReservation": RESERVATIONS[identity]})

    def describe(self: Any) -> Any:
        wanted = self._get_param("CapacityReservationIds", []) or list(RESERVATIONS)
        missing = [identity for identity in wanted if identity not in RESERVATIONS]
        if missing:
            from moto.ec2.exceptions import EC2ClientError

            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{missing[0]}' does not exist"
            )
        return ActionResult({"CapacityReservations": [RESERVATIONS[identity] for identity in wanted]})

    EC2Response.create_capacity_reservation = create
    EC2Response.describe_capacity_reservations = describe


def extend_fsx() -> None:
    """Seventeen-digit ids, a life cycle, a VPC and network interfaces; volumes and data repository associations."""
    import moto.fsx.models as models
    from moto.ec2.models import ec2_backends
    from moto.fsx.responses import FSxResponse

    first_init, first_dict = models.FileSystem.__init__, models.FileSystem.to_dict

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        first_init(self, *args, **kwargs)
        short, self.file_system_id = self.file_system_id, f"fs-{uuid.uuid4().hex[:17]}"
        self.dns_name = self.dns_name.replace(short, self.file_system_id)
        self.resource_arn = self.resource_arn.replace(short, self.file_system_id)
        self.interfaces: list[str] = []

    def to_dict(self: Any) -> dict[str, Any]:
        fields: dict[str, Any] = first_dict(self)
        ec2 = ec2_backends[self.backend.account_id][self.backend.region_name]
        subnet = ec2.get_subnet(self.subnet_ids[0])
        if not self.interfaces:
            interface = ec2.create_network_interface(subnet, "", group_ids=self.security_group_ids)
            self.interfaces.append(interface.id)
        fields |= {"Lifecycle": "AVAILABLE", "VpcId": subnet.vpc_id, "NetworkInterfaceIds": self.interfaces}
        if fields.get("LustreConfiguration"):
            fields["LustreConfiguration"].setdefault("MountName", "abcdefgh")
        if self.file_system_type == "OPENZFS":
            volume = next((v for v, fs in VOLUMES.items() if fs == self.file_system_id), None)
            volume = volume or f"fsvol-{uuid.uuid4().hex[:17]}"
            VOLUMES[volume] = self.file_system_id
            fields.setdefault("OpenZFSConfiguration", {})["RootVolumeId"] = volume
        return fields

    def describe_volumes(self: Any) -> str:
        wanted = json.loads(self.body).get("VolumeIds", [])
        volumes = [
            {
                "VolumeId": volume,
                "VolumeType": "OPENZFS",
                "Lifecycle": "AVAILABLE",
                "FileSystemId": VOLUMES[volume],
                "OpenZFSConfiguration": {"VolumePath": "/fsx"},
            }
            for volume in wanted
            if volume in VOLUMES
        ]
        return json.dumps({"Volumes": volumes})

    models.FileSystem.__init__ = init
    models.FileSystem.to_dict = to_dict
    FSxResponse.describe_volumes = describe_volumes
    FSxResponse.describe_data_repository_associations = lambda self: json.dumps({"Associations": []})


def allow_ephemeral_disks() -> None:
    """moto wants an `Ebs` part in every block device; ParallelCluster's launch test has `VirtualName` ones."""
    from moto.ec2.responses.instances import InstanceResponse

    first = InstanceResponse._validate_block_device_mapping

    def check(device: dict[str, Any]) -> None:
        if not str(device.get("VirtualName", "")).startswith("ephemeral"):
            first(device)

    InstanceResponse._validate_block_device_mapping = staticmethod(check)


def groups_of_reservations() -> None:
    """ListGroupResources, and groups that are asked for by their ARN."""
    from moto.resourcegroups import urls
    from moto.resourcegroups.responses import ResourceGroupsResponse

    def list_group_resources(self: Any) -> str:
        members = GROUPS.get(self._get_param("Group").rpartition("/")[2], {})
        kind = "AWS::EC2::CapacityReservation"
        resources = [{"ResourceArn": RESERVATIONS[m]["CapacityReservationArn"], "ResourceType": kind} for m in members]
        return json.dumps({"Resources": [{"Identifier": identifier} for identifier in resources]})

    def get_group_configuration(self: Any) -> str:
        name = self._get_param("Group").rpartition("/")[2]
        configuration = self.resourcegroups_backend.get_group_configuration(group_name=name)
        return json.dumps({"GroupConfiguration": {"Configuration": configuration}})

    urls.url_paths["{0}/list-group-resources$"] = ResourceGroupsResponse.dispatch
    ResourceGroupsResponse.list_group_resources = list_group_resources
    ResourceGroupsResponse.get_group_configuration = get_group_configuration


def main() -> None:
    ready = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOTO_AMIS_PATH"] = str(images_file(Path(folder)))
        os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"
        add_reservations()
        extend_fsx()
        allow_ephemeral_disks()
        groups_of_reservations()
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        partial = ready.with_suffix(".partial")
        partial.write_text(str(server.get_host_and_port()[1]))
        partial.replace(ready)
        sys.stdin.read()  # the parent holds the other end: when it goes, so does the server
        server.stop()


if __name__ == "__main__":
    main()
