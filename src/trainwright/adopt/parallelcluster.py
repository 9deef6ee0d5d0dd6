"""A ParallelCluster configuration -> the cluster part of a spec."""

from __future__ import annotations

from typing import Any

from trainwright.adopt.result import Adoption
from trainwright.check.model import Cluster, File, Queue, Storage, Value, known

_STORAGES = ("lustre", "openzfs", "efs", "ebs")
_DEPLOYMENTS = {
    "PERSISTENT_1": "persistent-1", "PERSISTENT_2": "persistent-2", "SCRATCH_1": "scratch-1", "SCRATCH_2": "scratch-2",
}  # fmt: skip
_READ = {"Region", "Image", "HeadNode", "Scheduling", "SharedStorage", "Tags"}


def adopt_cluster(file: File) -> Adoption:
    """The cluster as a spec without jobs."""
    result = Adoption(file.path)
    cluster = file.clusters[0]
    name = file.path.rsplit("/", 1)[-1].split(".")[0]
    result.spec |= {"name": name, "platform": "parallelcluster"}
    result.assume(f"name: {name}", None, "a cluster file does not hold the cluster's name")
    _put(result, result.spec, "region", cluster.region)
    _queues(result, cluster)
    _storages(result, cluster)
    _head(result, cluster)
    _network(result, cluster)
    _software(result, cluster)
    for root in file.nodes:
        for key, node in root.items():
            if key not in _READ:
                result.drop(key, node.span, "a spec has no field for it; `plan` writes what the spec asks for")
    return result


def _put(result: Adoption, target: dict[str, Any], key: str, value: Value[Any] | None) -> None:
    if value is None:
        return
    if not value.known:
        result.assume(f"{key}: {value.text or value.value}", value, "a placeholder: write its value in its place")
    target[key] = value.value
    result.carry(f"{value.value}", value, key)


def _queues(result: Adoption, cluster: Cluster) -> None:
    result.spec["queues"] = []
    names: set[str] = set()
    for queue in cluster.queues:
        name = (queue.name.value if queue.name is not None else "") or "queue"
        if name in names and queue.resource is not None:
            name = queue.resource.value
            result.assume(f"queue {name}", queue.span, "a spec's queue has one kind of node: one for each resource")
        names.add(name)
        result.spec["queues"].append(_queue(result, queue, name))


def _queue(result: Adoption, queue: Queue, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name}
    if queue.instances:
        _put(result, made, "instance", queue.instances[0])
        for other in queue.instances[1:]:
            result.drop(f"instance type {other.value}", other, "a queue of a spec has one instance type")
    least, most = known(queue.min_count) or 0, known(queue.max_count)
    most = 10 if most is None else most  # ParallelCluster's own default
    made["count"] = most if least == most else {"min": least, "max": most}
    result.carry(f"MinCount {least}, MaxCount {most}", queue.span, f"queue {name}: count")
    reservation, group, capacity = known(queue.reservation), known(queue.reservation_group), known(queue.capacity)
    if reservation:
        made["capacity"] = {"block" if capacity == "block" else "reservation": reservation}
    elif group:
        made["capacity"] = {"group": group}
    elif capacity == "spot":
        made["capacity"] = "spot"
    placement = known(queue.placement_name) or known(queue.placement)
    if placement is not None:
        made["placement"] = placement
    if known(queue.efa) is not None:
        made["efa"] = known(queue.efa)
    if known(queue.root_volume_gib):
        made["root_volume"] = f"{known(queue.root_volume_gib)}GiB"
    scripts = [{"source": s.source.value, "args": [a.value for a in s.args]} for s in queue.scripts]
    if scripts:
        made["scripts"] = scripts
    for setting, value in queue.slurm_settings.items():
        result.drop(f"CustomSlurmSettings {setting}", value, "a spec sets slurm.conf for the whole cluster: `slurm:`")
    return made


def _storages(result: Adoption, cluster: Cluster) -> None:
    made = []
    for storage in cluster.storages:
        if storage.kind not in _STORAGES or storage.mount is None:
            result.drop(f"storage {storage.kind}", storage.span, "a spec has no word for this kind")
            continue
        made.append({"mount": storage.mount.value, storage.kind: _storage(storage)})
        result.carry(f"{storage.kind} at {storage.mount.value}", storage.span, f"storage {storage.mount.value}")
        if storage.links and storage.links[0].bucket is not None:
            made[-1]["bucket"] = storage.links[0].bucket.value
    if made:
        result.spec["storage"] = made


def _storage(storage: Storage) -> dict[str, Any]:
    if storage.existing is not None:
        return {"id": storage.existing.value}
    made: dict[str, Any] = {}
    capacity = known(storage.capacity_gib)
    if capacity:
        made["capacity"] = f"{capacity:g}GiB"
    elif storage.kind == "ebs":
        made["capacity"] = "35GiB"  # ParallelCluster's own default
    if storage.kind == "lustre":
        deployment = _DEPLOYMENTS.get(known(storage.deployment) or "")
        if deployment:
            made["deployment"] = deployment
        if known(storage.throughput):
            made["throughput"] = known(storage.throughput)
        made["managed"] = True
    return made


def _head(result: Adoption, cluster: Cluster) -> None:
    head = cluster.head
    made: dict[str, Any] = {}
    if head is None:
        return
    _put(result, made, "instance", head.instance)
    _put(result, made, "key", head.key)
    if known(head.root_volume_gib):
        made["root_volume"] = f"{known(head.root_volume_gib)}GiB"
    scripts = [{"source": s.source.value, "args": [a.value for a in s.args]} for s in head.scripts]
    if scripts:
        made["scripts"] = scripts
    if made:
        result.spec["head"] = made
    for policy in head.policies:
        result.drop(f"policy {policy.value}", policy, "roles are made by what the spec needs")


def _network(result: Adoption, cluster: Cluster) -> None:
    made: dict[str, Any] = {}
    if cluster.head is not None:
        _put(result, made, "public_subnet", cluster.head.subnet)
    subnets = [subnet for queue in cluster.queues for subnet in queue.subnets]
    if subnets:
        _put(result, made, "private_subnet", subnets[0])
    for other in {subnet.value: subnet for subnet in subnets[1:]}.values():
        if other.value != subnets[0].value:
            result.drop(f"subnet {other.value}", other, "a spec has one subnet of compute nodes")
    if made:
        result.spec["network"] = made


def _software(result: Adoption, cluster: Cluster) -> None:
    made: dict[str, Any] = {}
    _put(result, made, "os", cluster.os)
    _put(result, made, "image", cluster.image)
    if made:
        result.spec["software"] = made
    settings = {name: value.value for name, value in cluster.slurm_settings.items()}
    if settings:
        result.spec["slurm"] = {name: v if isinstance(v, int | str) else str(v) for name, v in settings.items()}
    if cluster.database is not None:
        uri, user, secret = cluster.database.uri, cluster.database.user, cluster.database.secret
        stated = {"uri": uri, "user": user, "secret": secret}
        result.spec["accounting"] = {key: value.value for key, value in stated.items() if value is not None}
