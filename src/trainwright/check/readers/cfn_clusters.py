"""The clusters a CloudFormation template describes (Batch compute environments, EKS node groups, HyperPod) and the
jobs of its Batch job definitions."""

from __future__ import annotations

from trainwright.catalog.instances import find_instance
from trainwright.check.model import Cluster, EnvVar, File, Job, LaunchTemplate, Queue, Value
from trainwright.check.readers.cfn_template import Resource, Template, maps, target
from trainwright.spec.source import Node


def read_clusters(file: File, template: Template) -> None:
    """Fill the file's clusters and jobs."""
    by_name = {one.name: one for one in file.launch_templates}
    file.clusters += [_batch(template, r, by_name) for r in template.of("Batch::ComputeEnvironment")]
    file.clusters += [_node_group(template, r, by_name) for r in template.of("EKS::Nodegroup")]
    file.clusters += [_hyperpod(template, r) for r in template.of("SageMaker::Cluster")]
    file.jobs += [_job(template, r, file.clusters) for r in template.of("Batch::JobDefinition")]


def _batch(template: Template, resource: Resource, launch: dict[str, LaunchTemplate]) -> Cluster:
    compute = resource.get("ComputeResources")
    queue = Queue(resource.span, Value(resource.id, resource.span))
    if compute is not None:
        queue.instances = template.texts(compute.get("InstanceTypes"))
        queue.subnets = template.texts(compute.get("Subnets"))
        queue.security_groups = template.texts(compute.get("SecurityGroupIds"))
        group = compute.get("PlacementGroup")
        if group is not None:
            queue.placement_name = template.text(group)
            queue.placement = Value(True, group.span, group.text, compute.keys.get("PlacementGroup"), group.is_scalar)
        for key, name in (("min_vcpus", "MinvCpus"), ("max_vcpus", "MaxvCpus")):
            number = template.number(compute.get(name))
            if number is not None:
                queue.extra[key] = number
        _launch(queue, launch, compute.get("LaunchTemplate"), "batch")
    return Cluster(resource.span, "batch", queues=[queue])


def _launch(queue: Queue, templates: dict[str, LaunchTemplate], node: Node | None, user: str) -> None:
    """Exchange facts between a queue and its launch template."""
    template = None
    for key in ("LaunchTemplateId", "LaunchTemplateName", "Id", "Name"):
        template = template or templates.get(target(node.get(key) if node is not None else None) or "")
    if template is None:
        return
    template.users.add(user)
    efa = [one for one in template.interfaces if one.kind is not None and one.kind.value.startswith("efa")]
    if efa:
        queue.efa = Value(True, template.interfaces_span or template.span)
    if template.instance is None and len(queue.instances) == 1:
        template.instance = queue.instances[0]
    elif template.instance is not None and not queue.instances:
        queue.instances = [template.instance]
    queue.reservation, queue.reservation_group = template.reservation, template.reservation_group
    if template.market is not None and template.market.value == "capacity-block":
        queue.capacity = template.market.meaning("block")
    if template.placement is not None and queue.placement is None:
        queue.placement_name = template.placement
        queue.placement = Value(True, template.placement.span, template.placement.text)


def _node_group(template: Template, resource: Resource, launch: dict[str, LaunchTemplate]) -> Cluster:
    queue = Queue(
        resource.span,
        template.text(resource.get("NodegroupName")) or Value(resource.id, resource.span),
        instances=template.texts(resource.get("InstanceTypes")),
        min_count=template.number(resource.get("ScalingConfig", "MinSize")),
        max_count=template.number(resource.get("ScalingConfig", "MaxSize")),
        subnets=template.texts(resource.get("Subnets")),
        root_volume_gib=template.number(resource.get("DiskSize")),
    )
    image = template.text(resource.get("AmiType"))
    if image is not None:
        queue.extra["ami_type"] = image
    _launch(queue, launch, resource.get("LaunchTemplate"), "eks")
    return Cluster(resource.span, "eks-nodegroup", queues=[queue], version=template.text(resource.get("Version")))


def _hyperpod(template: Template, resource: Resource) -> Cluster:
    groups = template.texts(resource.get("VpcConfig", "SecurityGroupIds"))
    subnets = template.texts(resource.get("VpcConfig", "Subnets"))
    queues = []
    for node in maps(resource.get("InstanceGroups")):
        instance = template.text(node.get("InstanceType"))
        count = template.number(node.get("InstanceCount"))
        known = find_instance(instance.value) if instance is not None and instance.known else None
        queues.append(
            Queue(
                node.span,
                template.text(node.get("InstanceGroupName")),
                instances=[instance] if instance is not None else [],
                min_count=count,
                max_count=count,
                subnets=subnets,
                security_groups=groups,
                efa=Value(True, instance.span) if instance is not None and known and known.efa_cards else None,
                extra={
                    key: value
                    for key, value in (
                        ("threads_per_core", template.number(node.get("ThreadsPerCore"))),
                        ("lifecycle", template.text(node.get("LifeCycleConfig", "SourceS3Uri"))),
                    )
                    if value is not None
                },
            )
        )
    cluster = Cluster(resource.span, "hyperpod", template.text(resource.get("ClusterName")), queues=queues)
    recovery = template.text(resource.get("NodeRecovery"))
    if recovery is not None:
        cluster.extra["node_recovery"] = recovery
    return cluster


def _job(template: Template, resource: Resource, clusters: list[Cluster]) -> Job:
    ranges = maps(resource.get("NodeProperties", "NodeRangeProperties"))
    container = ranges[0].get("Container") if ranges else resource.get("ContainerProperties")
    batch = [cluster.queues[0] for cluster in clusters if cluster.platform == "batch"]
    queue = batch[0] if len(batch) == 1 else None
    job = Job(
        resource.span,
        "batch",
        template.text(resource.get("JobDefinitionName")) or Value(resource.id, resource.span),
        nodes=template.number(resource.get("NodeProperties", "NumNodes")),
        queue=queue,
        instance=queue.instances[0] if queue is not None and len(queue.instances) == 1 else None,
    )
    if container is not None:
        _container(template, container, job)
    return job


def _container(template: Template, container: Node, job: Job) -> None:
    job.image = template.text(container.get("Image"))
    for node in maps(container.get("ResourceRequirements")):
        kind, amount = template.text(node.get("Type")), template.number(node.get("Value"))
        if kind is not None and amount is not None and kind.value == "GPU":
            job.gpus_per_node.append(amount)
        elif kind is not None and amount is not None:
            job.extra[kind.value.lower()] = amount
    for node in maps(container.get("Environment")):
        name, value = template.text(node.get("Name")), template.text(node.get("Value"))
        if name is not None and value is not None:
            job.env.append(EnvVar(name.value, value, node.span))
    linux = container.get("LinuxParameters")
    devices = maps(linux.get("Devices")) if linux is not None else []
    cards = [d for d in devices if "uverbs" in (d.get("HostPath") or d).text]
    if cards and linux is not None:
        job.efa_per_node.append(Value(len(cards), linux.key_span("Devices"), f"{len(cards)} devices"))
    shared = template.number(linux.get("SharedMemorySize")) if linux is not None else None
    if shared is not None:
        job.extra["shm_mib"] = shared
    for node in maps(container.get("Ulimits")):
        name, limit = template.text(node.get("Name")), template.number(node.get("HardLimit"))
        if name is not None and limit is not None:
            job.extra[f"ulimit_{name.value}"] = limit
