"""K8S: names under which the pods of a job look for each other: of a pod (`train-0.train`) or of a Service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.check.kustomize import is_kustomized
from trainwright.check.model import File, Value
from trainwright.check.readers.kubernetes_pods import command_words, maps_at
from trainwright.check.readers.values import bool_at, int_at, map_values, text_at
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.k8s_groups import PodGroup, kind_of, may_share_a_namespace, name_of, pod_groups
from trainwright.check.rules.k8s_services import headless_fix, is_headless, manifests_beside
from trainwright.spec.source import Node

_NAME = r"(?:tcp://)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?![\w$.{(-])"
# Options and assignments that give the ranks the address of the first one.
_ADDRESS = re.compile(
    r"(?:--(?:master[-_]addr|rdzv[-_]endpoint|main[-_]process[-_]ip|coordinator[-_]address)[=\s]\s*"
    rf"|(?:MASTER_ADDR|COORDINATOR_ADDRESS|RDZV_ENDPOINT|PET_RDZV_ENDPOINT)=)[\"']?{_NAME}"
)
_VARIABLES = re.compile(r"(PET_)?(MASTER_ADDR|RDZV_ENDPOINT)|COORDINATOR_ADDRESS|(MASTER|HEAD)_(HOST|IP)")
_WHOLE = re.compile(rf"{_NAME}(:\d+)?")
# Labels that a controller puts on the pods.
_ADDED = re.compile(
    r"(.*\.)?(kubernetes\.io|k8s\.io|kubeflow\.org|ray\.io|volcano\.sh)/.*|job-name|controller-uid|.*jobset.*"
)
_OF_SET = re.compile(r"(.+)-(\d+)-(\d+)")
_JOB_NAME = ("job-name", "batch.kubernetes.io/job-name")
_NOT_RESOLVED = (
    "a pod has a name only below a headless Service: the one that its subdomain names and that selects it. The other "
    "ranks look for an unknown host until the rendezvous times out, while every GPU is allocated."
)


@dataclass(frozen=True, slots=True)
class Host:
    """An address that a pod is given."""

    name: str
    at: Node

    @property
    def first(self) -> str:
        return self.name.partition(".")[0]

    @property
    def domain(self) -> str:
        """The part behind the pod's name."""
        return self.name.partition(".")[2].partition(".")[0]


def unresolved_hosts(file: File) -> Iterator[Problem]:
    """Addresses that lead to no pod."""
    if file.template or any(pod.partial for pod in file.pods):
        return  # what is missing may be added
    for root in file.nodes:
        for group in pod_groups(root):
            hosts = list(_hosts(group.spec))
            if hosts and not (group.count is not None and group.count < 2 and kind_of(root) == "Job"):
                yield from _of_pods(file, root, group, hosts)
                yield from _of_services(file, root, hosts)


def _hosts(spec: Node) -> Iterator[Host]:
    for container in maps_at(spec, "containers"):
        for variable in maps_at(container, "env"):
            name, value = text_at(variable, "name"), variable.get("value")
            match = _WHOLE.fullmatch(value.text) if value is not None and value.is_scalar else None
            if name is not None and value is not None and match is not None and _VARIABLES.fullmatch(name.value):
                yield Host(match[1], value)
        words = command_words(container)
        text = " ".join(word.text for word in words)
        for host in dict.fromkeys(match[1] for match in _ADDRESS.finditer(text)):
            yield Host(host, next(word for word in words if host in word.text))


def _of_pods(file: File, root: Node, group: PodGroup, hosts: list[Host]) -> Iterator[Problem]:
    """Names of pods of the same object: `<job>-0`, and of a JobSet `<jobset>-<job>-0-0`."""
    kind, name = kind_of(root), re.escape(name_of(root))
    if not name or kind not in ("Job", "StatefulSet", "JobSet") or group.spec.get("hostname") is not None:
        return
    own = re.compile(rf"{name}-.+-\d+-\d+" if kind == "JobSet" else rf"{name}-\d+")
    for host in hosts:
        nameless = kind == "JobSet" and host.domain == _subdomain(root, group)[0]  # but in its subdomain
        if not host.domain or not (nameless or own.fullmatch(host.first)):
            continue  # alone it may be the name of a Service in the cluster
        problems = list(_of_job_set(root, host)) if kind == "JobSet" else []
        problems = problems or list(_domain(file, root, group, host))
        if not problems and kind != "JobSet":
            problems = list(_service_of(file, root, group, host))
        yield from problems
        return


def _of_job_set(root: Node, host: Host) -> Iterator[Problem]:
    """`<jobset>-<job>-<replica>-<index>`, of a job that it has and a pod that this job makes."""
    spec, set_, match = root.get("spec"), name_of(root), _OF_SET.fullmatch(host.first)
    listed = maps_at(spec, "replicatedJobs") if spec is not None else []
    jobs = {name.value: one for one in listed if (name := text_at(one, "name")) is not None and name.known}
    if match is None or not jobs or len(jobs) < len(listed):
        return
    job = match[1].removeprefix(f"{set_}-")
    if job not in jobs and job == match[1]:
        return  # of another set in the same subdomain
    if job not in jobs:
        said = f"{host.first} is a pod of no job of this JobSet, which has {', '.join(jobs)}"
        fix = f"write {set_}-{next(iter(jobs))}-0-0.{host.domain}"
    elif job == match[1]:
        said = f"{host.first} is no pod of this JobSet: their names begin with its own, {set_}"
        fix = f"write {set_}-{host.name}"
    elif not _has_pod(jobs[job], int(match[2]), int(match[3])):
        said = f"the job {job} has no pod {match[2]}-{match[3]}: both numbers count from 0"
        fix = f"write {set_}-{job}-0-0.{host.domain}"
    else:
        return
    yield problem(host.at, said, fix, level="error", why=_NOT_RESOLVED)


def _has_pod(job: Node, replica: int, index: int) -> bool:
    replicas, inner = int_at(job, "replicas"), job.get("template", "spec")
    pods = [int_at(inner, key) for key in ("completions", "parallelism")]
    if any(one is not None and not one.known for one in (replicas, *pods)):
        return True
    most = max((one.value for one in pods if one is not None), default=1)
    return replica < (replicas.value if replicas is not None else 1) and index < most


def _subdomain(root: Node, group: PodGroup) -> tuple[str | None, Value[str] | None]:
    """The subdomain of the pods, None where it is not known; and where it is written."""
    paths = {"StatefulSet": ("spec", "serviceName"), "JobSet": ("spec", "network", "subdomain")}
    path = paths.get(kind_of(root))
    stated = text_at(root, *path) if path is not None else text_at(group.spec, "subdomain")
    if stated is None and kind_of(root) == "JobSet":
        names = bool_at(root, "spec", "network", "enableDNSHostnames")
        return (name_of(root) if names is None or names.value else None), None
    if stated is None:
        return "", None
    return (stated.value if stated.known else None), stated


def _domain(file: File, root: Node, group: PodGroup, host: Host) -> Iterator[Problem]:
    subdomain, _ = _subdomain(root, group)
    if subdomain is None or host.domain == subdomain:
        return
    where = "serviceName" if kind_of(root) == "StatefulSet" else "subdomain"
    if not subdomain:
        said = f"{host.first} is the name of a pod without a {where}: no other pod can resolve it"
        fix = (
            f"add {where}: with the name of a headless Service that selects the pods, and write {host.first}.<its name>"
        )
    else:
        said = f"the pods are in the subdomain {subdomain}: {host.first}.{host.domain} is not resolved"
        fix = f"write {host.first}.{subdomain}"
        if any(is_headless(one) for one in _named(file, root, host.domain)) and not _named(file, root, subdomain):
            fix = f"write {where}: {host.domain}, the name of the headless Service"
    mode = text_at(root, "spec", "completionMode")
    if kind_of(root) == "Job" and mode is None:
        fix += f"; and completionMode: Indexed with completions: {group.count or 1}, which gives pods these names"
    yield problem(host.at, said, fix, level="error", why=_NOT_RESOLVED)


def _service_of(file: File, root: Node, group: PodGroup, host: Host) -> Iterator[Problem]:
    """The Service that the subdomain names: it is there, headless, and selects the pods."""
    subdomain, at = _subdomain(root, group)
    services = _named(file, root, subdomain or "")
    if not subdomain or at is None:
        return
    if not services and not is_kustomized(file.path):
        others = [one for one in _services(file) if is_headless(one) and may_share_a_namespace(one, root)]
        right = next((one for one in others if _selects(one, root, group)), None)
        if right is not None and name_of(right):
            said = f"the headless Service of these pods is {name_of(right)}, and their subdomain {subdomain}"
            fix = f"write {name_of(right)} here and behind the pod's name in {host.name}, or rename the Service"
            said += f": {host.first}.{subdomain} is not resolved"
            yield problem(at, said, fix, level="warning", why=_NOT_RESOLVED)
    elif services and not any(is_headless(one) for one in services):
        said = f"the Service {subdomain} is not headless: {host.name}, the name of a pod, is not resolved"
        fix = f"write {headless_fix(services[0])} in the Service"
        yield problem(host.at, said, fix, level="error", why=_NOT_RESOLVED)
    elif not is_kustomized(file.path) and services and all(_selects(one, root, group) is False for one in services):
        said = f"the Service {subdomain} does not select these pods: {host.name} is not resolved"
        yield problem(host.at, said, "write the labels of the pods into its selector", level="error", why=_NOT_RESOLVED)


def _of_services(file: File, root: Node, hosts: list[Host]) -> Iterator[Problem]:
    """A Service of the file that is the address itself, and selects no pod of the directory."""
    if is_kustomized(file.path):
        return
    for host in hosts:
        services = [one for one in _services(file) if name_of(one) == host.first and may_share_a_namespace(one, root)]
        if not services or services[0].get("spec", "selector") is None:
            continue
        others = [node for other in manifests_beside(file, "containers") for node in other.nodes]
        pairs = [(node, group) for node in (*file.nodes, *others) for group in pod_groups(node)]
        if all(_selects(services[0], node, group) is False for node, group in pairs):
            said = f"the Service {host.first} selects no pod of this file or its directory: nobody answers there"
            fix = "write the labels of the first rank's pod into its selector"
            yield problem(host.at, said, fix, level="warning", why="a Service without pods refuses every connection.")
            return


def _services(file: File) -> list[Node]:
    return [root for root in file.nodes if kind_of(root) == "Service"]


def _named(file: File, root: Node, name: str) -> list[Node]:
    """Services of a name, in the file or in the other manifests of its directory."""
    nodes = _services(file) + [one for other in manifests_beside(file, "Service") for one in _services(other)]
    return [one for one in nodes if name_of(one) in (name, "") and may_share_a_namespace(one, root)]


def _selects(service: Node, root: Node, group: PodGroup) -> bool | None:
    """Whether a Service selects the pods of a group; None where the file does not show it."""
    wanted = map_values(service.get("spec", "selector"))
    labels = map_values(group.template.get("metadata", "labels"))
    if not wanted or not may_share_a_namespace(service, root):
        return None if not wanted else False
    open_ = False
    for key, value in wanted.items():
        has = labels.get(key)
        if has is None and _ADDED.fullmatch(key):
            if key in _JOB_NAME and kind_of(root) == "Job" and value.known and value.text != name_of(root):
                return False
            open_ |= not (key in _JOB_NAME and kind_of(root) == "Job")
        elif has is None or (has.known and value.known and has.text != value.text):
            return False
        else:
            open_ |= not (has.known and value.known)
    return None if open_ else True
