"""K8S: the ports of the Service that the ranks of a job find each other through."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainwright.check.beside import file_at
from trainwright.check.model import File, Job, Value
from trainwright.check.readers.values import int_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_MOST_FILES = 40  # of one directory: one with more is no job that belongs together


def unforwarded_ports(file: File, job: Job) -> Iterator[Problem]:
    """Ports of the rendezvous that its Service does not forward."""
    host, port, at = _rendezvous(job)
    if at is None or not host or not port.isdecimal():
        return
    name, _, domain = host.partition(".")
    services = _named(file, name, domain, job) or [
        s for f in manifests_beside(file, "Service") for s in _named(f, name, domain, job)
    ]
    problems = [list(_ports(at, int(port), name, service)) if not is_headless(service) else [] for service in services]
    if problems and all(problems):  # directories of examples have several of one name: one that fits is enough
        yield from problems[0]


def _named(file: File, name: str, domain: str, job: Job) -> list[Node]:
    return [service for known, service in _services(file) if known == name and _may_be_in(service, domain, job)]


def _may_be_in(service: Node, domain: str, job: Job) -> bool:
    """Whether a Service is in the namespace that a host name means: its own part, or that of the job."""
    stated, own = text_at(service, "metadata", "namespace"), job.extra.get("namespace")
    meant = domain.partition(".")[0] or (own.value if own is not None and own.known else "")
    return stated is None or not stated.known or not meant or stated.value == meant


def _rendezvous(job: Job) -> tuple[str, str, Value[str] | None]:
    """Host and port that all ranks are given, and where the port is written."""
    options = job.launch.options if job.launch is not None else {}
    if "standalone" in options:
        return "", "", None  # torchrun takes an address of its own
    backend = options.get("rdzv_backend")
    endpoint = job.extra.get("endpoint")
    if endpoint is not None:
        host, _, port = endpoint.value.rpartition(":")
        known = endpoint.known and (backend is None or backend.value in ("c10d", "static"))
        return (host, port, endpoint) if known else ("", "", None)
    variables = {variable.name: variable.value for variable in job.env}
    address = job.extra.get("master_address") or variables.get("MASTER_ADDR")
    stated = job.extra.get("master_port") or variables.get("MASTER_PORT")
    if address is None or stated is None or not address.known or not stated.known:
        return "", "", None
    return address.value, stated.value, stated


def _services(file: File) -> Iterator[tuple[str, Node]]:
    for root in file.nodes:
        kind, name = text_at(root, "kind"), text_at(root, "metadata", "name")
        if kind is not None and kind.value == "Service" and name is not None and name.known:
            yield name.value, root


def manifests_beside(file: File, word: str) -> Iterator[File]:
    """The other manifests of a directory that hold a word."""
    if file.path == "<stdin>":
        return
    folder = os.path.dirname(os.path.abspath(file.path))
    names = sorted(name for name in os.listdir(folder) if name.endswith((".yaml", ".yml")))
    for name in names if len(names) <= _MOST_FILES else ():
        other = file_at(os.path.join(folder, name), word) if name != os.path.basename(file.path) else None
        if other is not None and other.format == "kubernetes":
            yield other


def is_headless(service: Node) -> bool:
    """Whether a Service has no address of its own, or none that the file shows."""
    address, kind = text_at(service, "spec", "clusterIP"), text_at(service, "spec", "type")
    return (address is not None and (address.value == "None" or not address.known)) or (
        kind is not None and kind.value == "ExternalName"
    )


def headless_fix(service: Node) -> str:
    """A Service that is reached from outside cannot be headless."""
    kind = text_at(service, "spec", "type")
    outside = kind is not None and kind.value in ("NodePort", "LoadBalancer")
    return "clusterIP: None" + (f" in place of type: {kind.value}" if kind is not None and outside else "")


def _ports(at: Value[str], port: int, name: str, service: Node) -> Iterator[Problem]:
    listed = service.get("spec", "ports")
    entries = [one for one in listed.elements() if one.is_map] if listed is not None else []
    ports = [int_at(one, "port") for one in entries]
    if not entries or any(value is None or not value.known for value in ports):
        return
    numbers = {value.value: one for value, one in zip(ports, entries, strict=True) if value is not None}
    if port not in numbers:
        shown = ", ".join(str(number) for number in sorted(numbers))
        named = "" if all(one.get("name") is not None for one in entries) else " and a name to each of its ports"
        fix = f"add port {port} to it{named}, or {headless_fix(service)}"
        yield problem(at, f"the Service {name} forwards port {shown}, not {port}", fix)
        return
    target = int_at(numbers[port], "targetPort")
    if target is not None and target.known and target.value != port:
        yield problem(
            at,
            f"the Service {name} forwards port {port} to {target.value}, but the first rank listens on {port}",
            f"write targetPort: {port}, or {headless_fix(service)}",
        )
