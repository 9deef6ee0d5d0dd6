"""A changed spec under a running local cluster: nodes are added and removed, settings are read again, and the jobs on
the nodes that stay go on. What would end jobs is refused with their list."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Callable, Sequence

from trainwright.errors import UserError
from trainwright.platforms.local import config, daemons, ports, repair, state
from trainwright.platforms.local.cluster import LocalCluster, LocalNode
from trainwright.platforms.local.state import Record
from trainwright.schedulers.shell import Unreachable


class JobsInTheWay(UserError):
    """What was asked for is right and would end jobs."""

    status = 1


def jobs_on(record: Record, nodes: Sequence[str] = ()) -> list[str]:
    """A line for each job that waits or runs, of the whole cluster or of some nodes. Where the controller does not
    answer, the jobs are known by their processes."""
    where = ["-w", ",".join(nodes)] if nodes else []
    try:
        if "slurmctld" in repair.missing(record):  # its commands would try for seconds
            raise Unreachable("slurmctld does not answer")
        states = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED"
        shown = daemons.run_on_head(record, ["squeue", "-h", "-t", states, "-o", "%i|%j|%T|%N", *where])
    except UserError:
        marked = {words for pid, words in state.job_processes(record) if not nodes or words[2] in nodes}
        return sorted({f"job {job} {name} (running)".replace("  ", " ") for job, name, _ in marked})
    rows = (line.split("|", 3) for line in shown.splitlines() if line.count("|") >= 3)
    return [f"job {job} {name} ({word.lower()})" for job, name, word, _ in rows]


def refuse_for_jobs(what: str, jobs: list[str], name: str) -> None:
    """Stop where jobs are in the way."""
    if jobs:
        listed = "; ".join(jobs[:10]) + (f"; and {len(jobs) - 10} more" if len(jobs) > 10 else "")
        raise JobsInTheWay(
            f"{what} would end {len(jobs)} job{'s' if len(jobs) > 1 else ''}: {listed}",
            where=f"cluster {name}",
            fix="wait for them or cancel them; --force ends them",
        )


def fits_in_place(old: LocalCluster, new: LocalCluster) -> bool:
    """Whether nodes that stay keep what they are started with: address, size, mounts. Slurm reads the rest again."""
    if (old.database, old.mounts, old.elastic) != (new.database, new.mounts, new.elastic):
        return False
    before, after = _by_name(old), _by_name(new)
    kept = before.keys() & after.keys()
    return bool(kept) and all(_shape(before[name]) == _shape(after[name]) for name in kept)


def change_in_place(record: Record, new: LocalCluster, force: bool, say: Callable[[str], None]) -> Record:
    """Apply a spec whose remaining nodes are the same ones."""
    before, after = _by_name(record.cluster), _by_name(new)
    gone = [node for name, node in before.items() if name not in after]
    added = [node for name, node in after.items() if name not in before]
    if gone and not force:
        jobs = jobs_on(record, [node.name for node in gone])
        refuse_for_jobs(f"removing {', '.join(node.name for node in gone)}", jobs, new.name)
    say(f"changing cluster {new.name}: {len(added)} nodes added, {len(gone)} removed")
    more = 0 if record.namespaces else max(0, 2 + len(new.nodes) - len(record.ports))
    with ports.reserved(more) if more else contextlib.nullcontext(()) as chosen:
        changed = dataclasses.replace(record, cluster=new, ports=(*record.ports, *chosen))
        roles = {role for node in gone for role in (daemons.node_role(node), f"job-{node.name}")}
        state.kill(record, roles.__contains__)
        if record.namespaces and gone:
            daemons.disconnect(record, gone)
        state.write(changed)
        config.write_settings(changed)
        state.kill(changed, "slurmctld".__eq__, signal.SIGTERM)  # it saves its state first
        daemons.start_controller(changed, fresh=False)
        daemons.start_nodes(changed, [node for node in added if not node.elastic])
        # The nodes that stayed learn the addresses of the new ones.
        daemons.wait_for(
            lambda: daemons.answers(changed, ["scontrol", "reconfigure"]), "slurmctld answers", changed.log("slurmctld")
        )
    return changed


def _by_name(cluster: LocalCluster) -> dict[str, LocalNode]:
    return {node.name: node for node in cluster.nodes}


def _shape(node: LocalNode) -> tuple[object, ...]:
    queue = node.queue
    return node.index, node.elastic, queue.cpus, queue.gpus, queue.gpu_type
