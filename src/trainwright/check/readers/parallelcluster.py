"""ParallelCluster 3.x cluster configuration -> model. One `Queue` of the model is one compute resource."""

from __future__ import annotations

from typing import Any

from trainwright.check.model import BootScript, Cluster, Database, File, Head, Link, Queue, Storage, Value
from trainwright.check.readers.values import bool_at, int_at, map_values, text_at, texts_at, value_at, value_of
from trainwright.spec.source import Node

_CAPACITY = {"ONDEMAND": "on-demand", "SPOT": "spot", "CAPACITY_BLOCK": "block"}
_KINDS = {
    "FsxLustre": "lustre",
    "FsxOpenZfs": "openzfs",
    "FsxOntap": "ontap",
    "Efs": "efs",
    "Ebs": "ebs",
    "FileCache": "cache",
}
_ACTIONS = ("OnNodeStart", "OnNodeConfigured", "OnNodeUpdated")


def recognise(root: Node) -> bool:
    return root.get("Scheduling") is not None and (root.get("HeadNode") is not None or root.get("Image") is not None)


def read(file: File) -> None:
    """Fill the file's clusters from its documents."""
    file.clusters = [_cluster(root) for root in file.nodes if recognise(root)]


def _cluster(root: Node) -> Cluster:
    slurm = root.get("Scheduling", "SlurmSettings")
    return Cluster(
        span=root.span,
        platform="parallelcluster",
        region=text_at(root, "Region"),
        os=text_at(root, "Image", "Os"),
        image=text_at(root, "Image", "CustomAmi"),
        imds=text_at(root, "Imds", "ImdsSupport"),
        head=_head(root.get("HeadNode"), _elements(root, "LoginNodes", "Pools")),
        queues=_queues(root),
        storages=[_storage(node) for node in _elements(root, "SharedStorage")],
        slurm_settings=_settings(slurm),
        slurm_include=text_at(slurm, "CustomSlurmSettingsIncludeFile"),
        database=_database(slurm),
    )


def _elements(node: Node | None, *path: str) -> list[Node]:
    listed = node.get(*path) if node is not None else None
    return [element for element in listed.elements() if element.is_map] if listed is not None else []


def _settings(node: Node | None) -> dict[str, Value[object]]:
    """Custom Slurm settings; ParallelCluster takes a list of maps for the cluster and one map elsewhere."""
    settings = node.get("CustomSlurmSettings") if node is not None else None
    if settings is None:
        return {}
    # A map of several keys in the list defines a node, node set or partition of the user's own: not a setting.
    maps = (
        [one for one in settings.elements() if one.is_map and len(one.value) == 1] if settings.is_list else [settings]
    )
    return {key: value for one in maps for key, value in map_values(one).items()}


def _head(node: Node | None, logins: list[Node]) -> Head | None:
    if node is None:
        return None
    return Head(
        span=node.span,
        instance=text_at(node, "InstanceType"),
        key=text_at(node, "Ssh", "KeyName"),
        subnet=text_at(node, "Networking", "SubnetId"),
        security_groups=texts_at(node, "Networking", "AdditionalSecurityGroups")
        + texts_at(node, "Networking", "SecurityGroups"),
        policies=[policy for one in (node, *logins) for policy in _policies(one)],
        scripts=[script for one in (node, *logins) for script in _scripts(one)],
        root_volume_gib=int_at(node, "LocalStorage", "RootVolume", "Size"),
        imds_secured=bool_at(node, "Imds", "Secured"),
        allowed_ips=[
            address
            for one in (node, *logins)
            for service in ("Ssh", "Dcv")
            if (address := text_at(one, service, "AllowedIps")) is not None
        ],
    )


def _policies(node: Node) -> list[Value[str]]:
    policies = (text_at(element, "Policy") for element in _elements(node, "Iam", "AdditionalIamPolicies"))
    return [policy for policy in policies if policy is not None]


def _scripts(node: Node) -> list[BootScript]:
    scripts = []
    for action in _ACTIONS:
        one = node.get("CustomActions", action)
        for step in [one, *_elements(one, "Sequence")] if one is not None else []:
            source = text_at(step, "Script")
            if source is not None:
                scripts.append(BootScript(source, texts_at(step, "Args"), action))
    return scripts


def _queues(root: Node) -> list[Queue]:
    queues = []
    for node in _elements(root, "Scheduling", "SlurmQueues"):
        resources: list[Node | None] = [*_elements(node, "ComputeResources")] or [None]
        queues += [_queue(node, resource) for resource in resources]
    return queues


def _queue(node: Node, resource: Node | None) -> Queue:
    listed = resource.get("Instances") if resource is not None else None
    named = listed.elements() if listed is not None else [resource]
    # The compute resource's own placement group and reservation win over the queue's.
    holder = resource if resource is not None and resource.get("Networking", "PlacementGroup") is not None else node
    target = resource if resource is not None and resource.get("CapacityReservationTarget") is not None else node
    capacity = text_at(node, "CapacityType")
    return Queue(
        span=resource.span if resource is not None else node.span,
        name=text_at(node, "Name"),
        resource=text_at(resource, "Name"),
        instances=[instance for one in named if (instance := text_at(one, "InstanceType")) is not None],
        instances_listed=Value(True, listed.span) if listed is not None else None,
        min_count=int_at(resource, "MinCount"),
        max_count=int_at(resource, "MaxCount"),
        capacity=capacity.meaning(_CAPACITY.get(capacity.value, capacity.value)) if capacity is not None else None,
        reservation=text_at(target, "CapacityReservationTarget", "CapacityReservationId"),
        reservation_group=text_at(target, "CapacityReservationTarget", "CapacityReservationResourceGroupArn"),
        placement=_placement(holder),
        placement_name=text_at(holder, "Networking", "PlacementGroup", "Name")
        or text_at(holder, "Networking", "PlacementGroup", "Id"),
        efa=bool_at(resource, "Efa", "Enabled"),
        subnets=texts_at(node, "Networking", "SubnetIds"),
        public_ip=bool_at(node, "Networking", "AssignPublicIp"),
        security_groups=texts_at(node, "Networking", "AdditionalSecurityGroups")
        + texts_at(node, "Networking", "SecurityGroups"),
        slurm_settings=_settings(node),
        resource_slurm_settings=_settings(resource),
        scripts=_scripts(node),
        policies=_policies(node),
        root_volume_gib=int_at(node, "ComputeSettings", "LocalStorage", "RootVolume", "Size"),
        scratch=text_at(node, "ComputeSettings", "LocalStorage", "EphemeralVolume", "MountDir"),
        extra=_extra(node, resource),
    )


def _extra(node: Node, resource: Node | None) -> dict[str, Value[Any]]:
    replaced = value_at(node, "Networking", "SecurityGroups")
    gpu_direct = bool_at(resource, "Efa", "GdrSupport")
    image = text_at(node, "Image", "CustomAmi")
    extra = {"replaced_groups": replaced, "gpu_direct": gpu_direct, "image": image}
    return {key: value for key, value in extra.items() if value is not None}


def _placement(node: Node) -> Value[bool] | None:
    group = node.get("Networking", "PlacementGroup")
    if group is None or not group.is_map:
        return None
    enabled = bool_at(group, "Enabled")
    if enabled is not None:
        return enabled
    named = value_at(group, "Name") or value_at(group, "Id")
    return named.meaning(True) if named is not None else None


def _storage(node: Node) -> Storage:
    kind = text_at(node, "StorageType")
    name = kind.value if kind is not None else ""
    settings = node.get(f"{name}Settings")
    existing = (
        text_at(settings, "FileSystemId")
        or text_at(settings, "VolumeId")
        or text_at(settings, "FileCacheId")
        or text_at(settings, "BackupId")  # restored: its size and kind are the backup's
    )
    if settings is not None and settings.is_scalar and settings.value is not None:
        existing = value_of(settings)  # a variable that stands for all of them
    capacity = int_at(settings, "StorageCapacity") or int_at(settings, "Size")
    return Storage(
        span=node.span,
        kind="raid" if settings is not None and settings.get("Raid") is not None else _KINDS.get(name, name.lower()),
        name=text_at(node, "Name"),
        mount=text_at(node, "MountDir"),
        existing=existing,
        capacity_gib=capacity.meaning(float(capacity.value)) if capacity else None,
        deployment=text_at(settings, "DeploymentType"),
        throughput=int_at(settings, "PerUnitStorageThroughput"),
        media=text_at(settings, "StorageType"),
        drive_cache=text_at(settings, "DriveCacheType"),
        kms_key=text_at(settings, "KmsKeyId"),
        backup_days=int_at(settings, "AutomaticBackupRetentionDays"),
        import_path=text_at(settings, "ImportPath"),
        export_path=text_at(settings, "ExportPath"),
        chunk_size=int_at(settings, "ImportedFileChunkSize"),
        auto_import=text_at(settings, "AutoImportPolicy"),
        links=[
            Link(text_at(e, "DataRepositoryPath"), e.span, e.get("AutoExportPolicy") is not None)
            for e in _elements(settings, "DataRepositoryAssociations")
        ],
        version=text_at(settings, "FileSystemTypeVersion"),
        deletion_policy=text_at(settings, "DeletionPolicy"),
        encrypted=bool_at(settings, "Encrypted"),
    )


def _database(node: Node | None) -> Database | None:
    database = node.get("Database") if node is not None else None
    if database is None or not database.is_map:
        return None
    assert node is not None
    return Database(
        node.key_span("Database"),
        text_at(database, "Uri"),
        text_at(database, "UserName"),
        text_at(database, "PasswordSecretArn"),
    )
