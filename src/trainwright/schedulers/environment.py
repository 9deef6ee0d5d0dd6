"""The environment of a job, computed: from the instance type and the versions on it, and from the network of a local
cluster. Every line has its reason; where there is no EFA, nothing of EFA is set."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.catalog.environment import EnvVar, environment
from trainwright.catalog.instances import find_instance
from trainwright.catalog.versions import Version, version_set
from trainwright.errors import UserError

RENDEZVOUS = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
_POD_CARD = EnvVar(
    "NCCL_SOCKET_IFNAME", "eth", "a pod has a card of its own, called eth0, whatever the node's is called"
)


def job_environment(
    instance: str | None,
    user: Mapping[str, str],
    cpus: int = 1,
    interface: str = "",
    versions: Mapping[str, Version] | None = None,
    own_network: bool = False,
) -> tuple[EnvVar, ...]:
    """What the ranks of a job start with: computed lines first, then the user's, which win."""
    lines = [*_threads(cpus), *_local(interface), *_instance(instance, versions)]
    if own_network:
        lines = [_POD_CARD if line.name == _POD_CARD.name else line for line in lines]
    lines += [EnvVar(name, value, "written in the job") for name, value in user.items()]
    unique = {line.name: line for line in lines}
    return tuple(unique.values())


def _threads(cpus: int) -> list[EnvVar]:
    why = f"a rank has {cpus} processor{'s' if cpus > 1 else ''}; more threads would wait for each other"
    return [EnvVar("OMP_NUM_THREADS", str(max(1, cpus)), why)]


def _local(interface: str) -> list[EnvVar]:
    if not interface:
        return []
    return [
        EnvVar("GLOO_SOCKET_IFNAME", interface, f"the nodes of this local cluster reach each other over {interface}")
    ]


def _instance(instance: str | None, versions: Mapping[str, Version] | None) -> list[EnvVar]:
    if not instance:
        return []
    known = find_instance(instance)
    if known is None:
        raise UserError(f"instance type {instance!r} is not in the catalog", fix="see `trainwright catalog`")
    return list(environment(known, versions if versions is not None else version_set().versions()))


def explain(lines: tuple[EnvVar, ...]) -> str:
    """One line a variable, with its reason, as `submit --explain` prints them."""
    width = max((len(f"{line.name}={line.value}") for line in lines), default=0)
    return "\n".join(f"{f'{line.name}={line.value}':<{width}}  # {line.why}" for line in lines)


def check_names(user: Mapping[str, str]) -> None:
    """The rendezvous is the scheduler's: a rank or an address written by hand breaks the second node."""
    for name in user:
        if name in RENDEZVOUS:
            raise UserError(
                f"env sets {name}, which each rank gets from the scheduler", fix=f"take {name} out of the job's env"
            )
