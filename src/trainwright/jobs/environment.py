"""The environment of a job, computed from the instance type and the versions on it. Every line has its reason; where
there is no EFA, nothing of EFA is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainwright.catalog.environment import EnvVar, environment
from trainwright.catalog.instances import InstanceType
from trainwright.catalog.versions import Version, version_set

# Each rank gets these from the scheduler; written by hand they break the second node.
RENDEZVOUS = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
_POD_CARD = EnvVar(
    "NCCL_SOCKET_IFNAME", "eth", "a pod has a network card of its own, called eth0, whatever the node's is called"
)


def job_environment(
    instance: InstanceType | None,
    user: Mapping[str, str],
    cpus: int = 1,
    versions: Mapping[str, Version] | None = None,
    own_network: bool = False,
    efa: bool = True,
) -> tuple[EnvVar, ...]:
    """What the ranks of a job start with: computed lines first, then the user's, which win. `efa`: whether
    the nodes have the EFA cards of their type."""
    lines = [_threads(cpus)] if cpus else []  # where it is not known, the job's script counts
    if instance is not None:
        instance = instance if efa else replace(instance, efa_cards=0)
        lines += environment(instance, versions if versions is not None else version_set().versions())
    if own_network:
        lines = [_POD_CARD if line.name == _POD_CARD.name else line for line in lines]
    lines += [EnvVar(name, value, "written in the job") for name, value in user.items()]
    unique = {line.name: line for line in lines}
    return tuple(unique.values())


def with_interface(lines: tuple[EnvVar, ...], interface: str) -> tuple[EnvVar, ...]:
    """The lines of a job on a local cluster, whose nodes reach each other over one interface."""
    if not interface or any(line.name == "GLOO_SOCKET_IFNAME" for line in lines):
        return lines
    why = f"the nodes of this local cluster reach each other over {interface}"
    return (*lines[:1], EnvVar("GLOO_SOCKET_IFNAME", interface, why), *lines[1:])


def _threads(cpus: int) -> EnvVar:
    why = f"a rank has {cpus} processor{'s' if cpus > 1 else ''}; more threads would wait for each other"
    return EnvVar("OMP_NUM_THREADS", str(max(1, cpus)), why)


def explain_environment(lines: tuple[EnvVar, ...]) -> str:
    """One line per variable, with its reason; a value of several lines stands in one, with `\\n`."""
    settings = [f"{line.name}={line.value}".replace("\r", "\\r").replace("\n", "\\n") for line in lines]
    width = max(map(len, settings), default=0)
    return "\n".join(f"{setting:<{width}}  # {line.why}" for setting, line in zip(settings, lines, strict=True))
