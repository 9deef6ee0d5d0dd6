"""Kubernetes manifests -> model: every pod template (of a PyTorchJob, MPIJob, JobSet, TrainJob, Job, Pod, RayCluster)
with what its containers ask for and run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.check.kustomize import is_completed, is_patch
from trainwright.check.model import Command, Container, File, Job, Pod, ShellScript, Value, Volume
from trainwright.check.readers.arguments import apply, whole
from trainwright.check.readers.kubernetes_pods import container_of, pod_of
from trainwright.check.readers.pins import pins_in_image
from trainwright.check.readers.shell import jobs_in
from trainwright.check.readers.shell_expand import Part, Parts
from trainwright.check.readers.shell_forms import given_variables
from trainwright.check.readers.shell_launch import commands_of, is_launcher, shell_string
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import of_node
from trainwright.check.readers.values import int_at, is_placeholder, text_at
from trainwright.spec.source import Node

GPU, EFA, NEURON = "nvidia.com/gpu", "vpc.amazonaws.com/efa", "aws.amazon.com/neuron"


_VERSIONED = ("Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "Service")


def recognise(root: Node) -> bool:
    return bool(_text(root, "kind") and (_text(root, "apiVersion") or lacks_version(root)))


def lacks_version(root: Node) -> bool:
    """Whether an object of Kubernetes is whole but for its apiVersion."""
    kind, spec = _text(root, "kind"), root.get("spec")
    if kind not in _VERSIONED or root.get("apiVersion") is not None or root.get("<<") is not None:
        return False
    if spec is None or root.get("metadata", "name") is None:
        return False
    if kind == "Service":
        return spec.get("selector") is not None
    containers = [one for template in _templates(root) for one in _containers(template.node)]
    return bool(containers) and all(one.get("image") is not None for one in containers)


def _text(root: Node, key: str) -> str:
    child = root.get(key)
    return child.text if child is not None and child.is_scalar else ""


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template, its position and its replicas."""

    kind: str
    role: str
    replicas: Value[int] | None
    node: Node  # the pod's spec
    root: Node


def read(file: File) -> None:
    """Fill the file's pods, jobs, scripts and pins."""
    lines = file.text.split("\n")
    part = is_patch(file.path) or is_completed(file.path, {_text(root, "kind") for root in file.nodes if root.is_map})
    for root in file.nodes:
        if not recognise(root):
            continue
        templates = list(_templates(root))
        made = [(t, pod_of(t.node, t.kind, t.role, t.replicas)) for t in templates]
        for _, pod in made:
            pod.volumes += _claims(root)
            pod.partial = pod.partial or part
            file.pods.append(pod)
        _tell_workers([pod for template, pod in made if template.kind == "MPIJob"])
        for template, pod in made:
            _jobs(file, template, pod, made, lines)
        file.jobs += _train_job(root, file, lines)
    for pod in file.pods:
        for container in pod.containers:
            file.pins += pins_in_image(container.image) if container.image is not None else []


def _tell_workers(pods: list[Pod]) -> None:
    """What the launcher of an MPIJob starts runs on its workers, whose own command is a daemon."""
    started = " ".join(c.runs for pod in pods if pod.role == "Launcher" for c in pod.containers)
    for container in (c for pod in pods if pod.role == "Worker" for c in pod.containers):
        container.runs = f"{container.runs} {started}"


def _claims(root: Node) -> list[Volume]:
    """Volumes that a StatefulSet claims for each of its pods."""
    listed = root.get("spec", "volumeClaimTemplates")
    names = [text_at(one, "metadata", "name") for one in (listed.elements() if listed is not None else ())]
    return [Volume(name.span, name, "persistentVolumeClaim") for name in names if name is not None]


def pod_specs(root: Node) -> list[Node]:
    """The specs of the pods that an object makes. Other templates, such as a node pool's, have no containers."""
    specs = [template.node for template in _templates(root)] if recognise(root) else []
    return [spec for spec in specs if spec.get("containers") is not None]


def _templates(root: Node) -> Iterator[Template]:
    kind = _text(root, "kind")
    spec = root.get("spec")
    if spec is None:
        return
    if kind == "Pod":
        yield Template(kind, "", None, spec, root)
    for key in ("pytorchReplicaSpecs", "mpiReplicaSpecs", "tfReplicaSpecs"):
        for role, replica in (spec.get(key) or Node({}, spec.span)).items():
            yield from _one(kind, role, replica, root)
    for replica in (spec.get("replicaSpecs") or Node([], spec.span)).elements():
        yield from _one(kind, _text(replica, "name"), replica, root)
    for job in (spec.get("replicatedJobs") or Node([], spec.span)).elements():
        inner = job.get("template", "spec", "template", "spec")
        count = _together(int_at(job, "template", "spec", "parallelism"), int_at(job, "replicas"))
        if inner is not None and inner.is_map:
            yield Template(kind, _text(job, "name"), count, inner, root)
    cluster = spec.get("rayClusterSpec") or spec
    head = cluster.get("headGroupSpec", "template", "spec")
    if head is not None and head.is_map:
        yield Template(kind, "head", None, head, root)
    for group in (cluster.get("workerGroupSpecs") or Node([], spec.span)).elements():
        yield from _one(kind, "worker", group, root)
    plain = spec.get("template", "spec") if kind != "CronJob" else spec.get("jobTemplate", "spec", "template", "spec")
    if plain is not None and plain.is_map:
        count = int_at(spec, "parallelism") or int_at(spec, "replicas")
        yield Template(kind, "", count, plain, root)


def _together(parallelism: Value[int] | None, replicas: Value[int] | None) -> Value[int] | None:
    """Pods of a replicated job: each of its replicas is a Job with so many pods."""
    if parallelism is None or replicas is None:
        return parallelism or replicas
    return replace(parallelism, value=parallelism.value * replicas.value, known=parallelism.known and replicas.known)


def _one(kind: str, role: str, replica: Node, root: Node) -> Iterator[Template]:
    inner = replica.get("template", "spec")
    if inner is not None and inner.is_map:
        yield Template(kind, role, int_at(replica, "replicas"), inner, root)


def _jobs(file: File, template: Template, pod: Pod, made: list[tuple[Template, Pod]], lines: list[str]) -> None:
    """A job for each container that asks for accelerators or starts ranks."""
    nodes = _containers(template.node)
    for node, container in zip(nodes, pod.containers, strict=True):
        script, commands = _what_runs(node, lines)
        container.script = script
        if script is not None:
            file.scripts.append(script)
        launches = _launches(commands, script)
        accelerated = any(name in container.limits or name in container.requests for name in (GPU, NEURON))
        if not launches and not accelerated:
            continue
        worker = _workers(template, made) if template.kind == "MPIJob" else None
        if template.kind == "MPIJob" and template.role == "Worker":
            continue
        started: list[Command | None] = [*launches] if launches else [None]
        for launch in started:
            file.jobs.append(_job(template, pod, container, worker, launch, commands, script, made))


def _workers(template: Template, made: list[tuple[Template, Pod]]) -> Pod | None:
    return next((pod for t, pod in made if t.root is template.root and t.role == "Worker"), None)


def _containers(node: Node) -> list[Node]:
    listed = node.get("containers")
    return [one for one in listed.elements() if one.is_map] if listed is not None else []


def _what_runs(node: Node, lines: list[str]) -> tuple[ShellScript | None, list[Command]]:
    """The commands of a container: its words, and the script in them if it runs one."""
    words: list[Parts] = []
    for key in ("command", "args"):
        stated = node.get(key)
        elements = list(stated.elements()) if stated is not None and stated.is_list else [stated] if stated else []
        words += [_part(element, lines) for element in elements if element.is_scalar and element.value is not None]
    if not words:
        return None, []
    string = shell_string(words)
    if string is not None:
        script = read_script(string[0].source)
        return script, script.commands
    return None, commands_of(words, node.span, None, False)


def direct_commands(node: Node, lines: list[str]) -> list[Command]:
    """The commands of a container that Kubernetes starts without a shell."""
    script, commands = _what_runs(node, lines)
    return commands if script is None else []


def _part(node: Node, lines: list[str]) -> Parts:
    source = of_node(node, lines)
    # Without a shell, `$(NAME)` is a variable of the container.
    known = not is_placeholder(node.text) and "$(" not in node.text
    return [Part(node.text, source, 0, len(node.text), known, exact=source.fixed is None)]


def _launches(commands: list[Command], script: ShellScript | None) -> list[Command]:
    if script is not None:
        return [job.launch for job in jobs_in(script) if job.launch is not None]
    return [command for command in commands if is_launcher(command.program)]


def _job(
    template: Template,
    pod: Pod,
    container: Container,
    worker: Pod | None,
    launch: Command | None,
    commands: list[Command],
    script: ShellScript | None,
    made: list[tuple[Template, Pod]],
) -> Job:
    holder = worker.containers[0] if worker is not None and worker.containers else container
    given = given_variables(commands) if script is None else ()  # a script has them itself
    job = Job(
        span=container.span,
        scheduler="kubernetes",
        name=text_at(template.root, "metadata", "name"),
        instance=(worker or pod).instance,
        nodes=_nodes(template, pod, worker, made),
        gpus_per_node=_amounts(holder, GPU),
        efa_per_node=_amounts(holder, EFA),
        processes_per_node=int_at(template.root, "spec", "nprocPerNode")
        or int_at(template.root, "spec", "elasticPolicy", "nProcPerNode")
        or int_at(template.root, "spec", "slotsPerWorker"),
        cpus_per_task=next(iter(_amounts(holder, "cpu")), None) if "cpu" in holder.limits else None,
        env=[*container.env, *(holder.env if holder is not container else []), *given],
        commands=commands,
        image=container.image,
        mounts=[path for path, _ in container.mounts],
        launch=launch,
        script=script,
        pod=worker or pod,
    )
    namespace = text_at(template.root, "metadata", "namespace")
    job.extra |= {"namespace": namespace} if namespace is not None else {}
    only_template = sum(t.root is template.root for t, _ in made) == 1
    if job.nodes is not None and (template.kind == "PyTorchJob" or (template.kind == "JobSet" and only_template)):
        job.extra["replicas"] = job.nodes
    if launch is not None:
        apply(job, launch)
    return job


def _amounts(container: Container, name: str) -> list[Value[int]]:
    amount = container.limits.get(name) or container.requests.get(name)
    number = whole(amount)
    return [number] if number is not None else []


def _nodes(template: Template, pod: Pod, worker: Pod | None, made: list[tuple[Template, Pod]]) -> Value[int] | None:
    """Pods that train together: the workers of an MPIJob, master and workers of a PyTorchJob."""
    if worker is not None:
        return worker.replicas
    together = [p for t, p in made if t.root is template.root and t.role in ("Master", "Worker")]
    if template.role in ("Master", "Worker") and len(together) > 1 and template.kind == "PyTorchJob":
        known = [p.replicas.value for p in together if p.replicas is not None and p.replicas.known]
        largest = max((p.replicas for p in together if p.replicas is not None), key=lambda r: r.value, default=None)
        missing = sum(p.replicas is None for p in together)
        certain = len(known) + missing == len(together)
        return replace(largest, value=sum(known) + missing, known=certain) if largest is not None else None
    return pod.replicas


def _train_job(root: Node, file: File, lines: list[str]) -> list[Job]:
    """Kubeflow Trainer v2's TrainJob has no pod template of its own."""
    trainer = root.get("spec", "trainer")
    if _text(root, "kind") != "TrainJob" or trainer is None or not trainer.is_map:
        return []
    shaped = Node({**trainer.value}, trainer.span, keys=dict(trainer.keys))
    if trainer.get("resourcesPerNode") is not None:
        shaped.value["resources"] = trainer.value["resourcesPerNode"]
    container = container_of(shaped)
    pod = Pod(trainer.span, "TrainJob", "", int_at(trainer, "numNodes"), [container])
    script, commands = _what_runs(shaped, lines)
    if script is not None:
        file.scripts.append(script)
    template = Template("TrainJob", "", pod.replicas, shaped, root)
    launches: list[Command | None] = [*_launches(commands, script)]
    jobs = [_job(template, pod, container, None, launch, commands, script, []) for launch in launches or [None]]
    for job in jobs:
        job.extra |= {"replicas": pod.replicas} if pod.replicas is not None else {}
        job.processes_per_node = int_at(trainer, "numProcPerNode") or job.processes_per_node
    file.pins += pins_in_image(container.image) if container.image is not None else []
    return jobs
