"""Repairing a local cluster in place: the daemons that are gone are started again from Slurm's saved state, and jobs on
the nodes that still run go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwright.platforms.local import daemons, database, state
from trainwright.platforms.local.cluster import LocalNode
from trainwright.platforms.local.state import Record

# The program of a role. Children inherit a daemon's mark, so the mark alone does not prove that the daemon lives.
PROGRAMS = {"munged": "munged", "slurmctld": "slurmctld", "mariadb": "mariadbd", "slurmdbd": "slurmdbd"}


def missing(record: Record) -> list[str]:
    """The roles that should be played and are not: daemons first, then nodes."""
    alive = running_roles(record)
    wanted = ["munged", *(["head"] if record.namespaces else []), "slurmctld"]
    wanted += ["mariadb", "slurmdbd"] if record.cluster.database else []
    wanted += ["supervisor"] if record.cluster.elastic else []
    wanted += [daemons.node_role(node) for node in static_nodes(record)]
    return [role for role in wanted if role not in alive]


def running_roles(record: Record) -> set[str]:
    """The roles whose own program runs."""
    return {role for pid, role in state.processes(record).items() if _plays(pid, role)}


def static_nodes(record: Record) -> list[LocalNode]:
    return [node for node in record.cluster.nodes if not node.elastic]


def repair(record: Record, roles: list[str], say: Callable[[str], None]) -> list[str]:
    """Start the missing daemons again; the nodes that were started."""
    say(f"restarting {', '.join(roles)} of cluster {record.cluster.name}")
    if "munged" in roles:
        (record.folder / "run/munge").unlink(missing_ok=True)
        daemons.start_munge(record)
    if "head" in roles:
        roles = _repair_head(record, roles)
    if "mariadb" in roles or "slurmdbd" in roles:
        state.kill(record, {"mariadb", "slurmdbd"}.__contains__)
        database.start_daemons(record)
    if "slurmctld" in roles:
        state.kill(record, "slurmctld".__eq__)  # its helper process, where that outlived it
        daemons.start_controller(record, fresh=False)
    if "supervisor" in roles:
        daemons.start_supervisor(record)
    nodes = [node for node in record.cluster.nodes if daemons.node_role(node) in roles]
    if nodes:
        daemons.start_nodes(record, nodes, booted=record.namespaces)
    return [node.name for node in nodes]


def _repair_head(record: Record, roles: list[str]) -> list[str]:
    """The head's network lives on in slurmctld. Without that it is gone, and every node is connected and started again:
    Slurm then requeues their jobs."""
    if "slurmctld" not in roles:
        daemons.start_head_again(record)
        return roles
    nodes = [role for role in running_roles(record) if role.startswith("node-")]
    state.kill(record, lambda role: role.startswith(("node-", "job-")))
    daemons.start_head(record)
    return list(dict.fromkeys([*roles, *nodes]))


def _plays(pid: int, role: str) -> bool:
    program = "slurmd" if role.startswith("node-") else PROGRAMS.get(role, "")
    try:
        return not program or Path(f"/proc/{pid}/comm").read_text().strip() == program
    except OSError:  # it ended meanwhile
        return False
