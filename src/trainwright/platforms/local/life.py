"""A local cluster: up, down, its status, and the faults that a drill injects."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable

from trainwright.errors import UserError
from trainwright.platforms.base import ClusterStatus, NodeStatus, QueueStatus
from trainwright.platforms.local import config, daemons, database, leftovers, monitoring, ports, repair, state
from trainwright.platforms.local.change import change_in_place, fits_in_place, jobs_on, refuse_for_jobs
from trainwright.platforms.local.cluster import LocalCluster
from trainwright.platforms.local.state import Record
from trainwright.schedulers.environments import environment
from trainwright.schedulers.shell import Unreachable

INSTALL = "apt-get install --no-install-recommends slurm-wlm munge tini iproute2"


def up(
    cluster: LocalCluster,
    own_network: bool | None = None,
    say: Callable[[str], None] = lambda words: None,
    force: bool = False,
) -> Record:
    """Start a real Slurm on this machine and wait until its nodes are idle.

    `own_network` gives each node a network, host name and process table of its own; by default that is done where
    root allows it. A cluster that already runs is repaired and changed in place; what would end its jobs is refused
    unless `force`. One that a crash left half started is started anew.
    """
    _refuse_what_is_missing()
    namespaces = daemons.namespaces_allowed() if own_network is None else own_network
    if cluster.mounts and not namespaces:
        raise UserError(
            "storage can be mounted only where each node has a file tree of its own, which needs root",
            fix="take storage out and use the folder's own path in the jobs",
        )
    with state.locked(cluster.name):
        old = state.read(cluster.name)
        if old and old.ready and (old.cluster == cluster or fits_in_place(old.cluster, cluster)):
            return _keep(old, cluster, force, say)
        if old:
            if old.ready and not force:
                refuse_for_jobs("this change of the spec", jobs_on(old), cluster.name)
            say(f"removing what is left of an earlier cluster {cluster.name}")
            _remove(old)
        try:
            return _start(cluster, namespaces, say)
        except BaseException:
            left = state.read(cluster.name)
            if left:
                _end_processes(left)
            raise


def _refuse_what_is_missing() -> None:
    missing = daemons.missing_programs()
    if missing:
        raise UserError(
            f"this machine has no Slurm to start: {', '.join(missing)} not found",
            fix=f"{INSTALL}; or run jobs as plain processes: `trainwright submit --scheduler process`",
        )


def _keep(record: Record, cluster: LocalCluster, force: bool, say: Callable[[str], None]) -> Record:
    """A cluster that is there: dead daemons are restarted, a changed spec is applied, jobs go on."""
    dead = repair.missing(record)
    started = repair.repair(record, dead, say) if dead else []
    if record.cluster != cluster:
        before = {node.name for node in record.cluster.nodes}
        record = change_in_place(record, cluster, force, say)
        started = [name for name in started if name in {node.name for node in cluster.nodes}]
        started += [node.name for node in repair.static_nodes(record) if node.name not in before]
    elif not dead:
        say(f"cluster {cluster.name} is already up")
    wait_ready(record, started)
    monitoring.ensure(record, say)
    return record


def _start(cluster: LocalCluster, namespaces: bool, say: Callable[[str], None]) -> Record:
    wanted = 0 if namespaces else 2 + len(cluster.nodes)
    with ports.reserved(wanted) if wanted else contextlib.nullcontext(()) as chosen:
        record = state.new_record(cluster, namespaces, chosen)
        config.write_all(record)
        leftovers.start_keeper(record)
        kind = "each in a network of its own" if namespaces else config.reachable_from()
        static = [node for node in cluster.nodes if not node.elastic]
        say(f"starting Slurm with {len(static)} nodes up of {len(cluster.nodes)}, {kind}")
        daemons.start_munge(record)
        daemons.start_head(record)
        if cluster.database:
            database.start(record)
            database.register(record)
        daemons.start_controller(record, fresh=True)
        if cluster.elastic:
            daemons.start_supervisor(record)
        daemons.start_nodes(record, static)
        wait_ready(record, [node.name for node in static])
        if cluster.monitoring is not None:
            monitoring.ensure(record, say)
    ready = dataclasses.replace(record, ready=True)
    state.write(ready)
    return ready


def wait_ready(record: Record, nodes: list[str], seconds: float = 90.0) -> None:
    """Wait until Slurm itself says that these nodes can take work."""
    log = record.log("slurmctld")

    def usable() -> bool:
        try:
            states = node_states(record)
        except UserError:  # the controller does not listen yet
            return False
        return all(states.get(name, ("", ""))[0] in {"idle", "mixed", "allocated"} for name in nodes)

    daemons.wait_for(usable, f"{len(nodes)} nodes are idle", log, seconds)


def down(name: str, force: bool = False) -> list[str]:
    """Stop a cluster and remove its folder; the names of what was stopped. Works on half-started ones too. A cluster
    with jobs is refused unless `force`."""
    state.require(name)
    with state.locked(name):
        record = state.require(name)
        if record.ready and not force:
            refuse_for_jobs(f"`down {name}`", jobs_on(record), name)
        roles = sorted(set(state.processes(record).values()))
        _remove(record)
        state.lock_file(name).unlink()
    return roles


def _end_processes(record: Record) -> None:
    # The supervisor first, or it could start a node behind our back.
    state.kill(record, lambda role: role == "supervisor")
    state.kill(record, lambda role: role.startswith("node-"))
    state.kill(record, lambda role: True)


def _remove(record: Record) -> None:
    _end_processes(record)
    state.remove(record)


def node_states(record: Record) -> dict[str, tuple[str, str]]:
    """node -> (state, reason), as Slurm says; flags such as `*` (does not answer) become words."""
    lines = daemons.run_on_head(record, ["sinfo", "-hN", "-o", "%N|%T|%E"]).splitlines()
    states = {}
    for line in lines:
        name, word, reason = (part.strip() for part in line.split("|", 2))
        # ~ powered down, # powering up, % powering down, ! about to, * silent: the letters sinfo appends.
        plain = {"~": "powered-down", "#": "powering-up", "%": "powering-down", "!": "powering-down"}.get(word[-1])
        states[name] = (plain or word.rstrip("*$@^-"), "" if reason == "none" else reason)
    return states


def status(name: str) -> ClusterStatus:
    record = state.require(name)
    states, problems = _node_states_now(record)
    nodes = tuple(
        NodeStatus(
            node.name, node.queue.name, *states.get(node.name, ("stopped", "")), address=_address(record, node.index)
        )
        for node in record.cluster.nodes
    )
    queues = tuple(
        QueueStatus(
            queue.name, queue.static, queue.nodes, queue.cpus, queue.gpus,
            dict(Counter(node.state for node in nodes if node.queue == queue.name)),
        )
        for queue in record.cluster.queues
    )  # fmt: skip
    word = "running" if record.ready and not problems else "broken"
    return ClusterStatus(name, "local", word, "slurm", queues, nodes, problems)


def _node_states_now(record: Record) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """What Slurm says about the nodes. Where it does not answer: which daemons are gone, and which nodes still run."""
    dead = repair.missing(record)
    fix = "`trainwright up SPEC` restarts it, and jobs go on"
    nodes = [role.removeprefix("node-") for role in dead if role.startswith("node-")]
    parts = [role for role in dead if not role.startswith("node-")]
    named = [*parts, *([f"slurmd of {', '.join(nodes[:8])}{', …' if len(nodes) > 8 else ''}"] if nodes else [])]
    problems = tuple(f"{what} is not running; {fix}" for what in named)
    try:
        if "slurmctld" in dead:  # its commands would try for seconds
            raise Unreachable("slurmctld does not answer")
        return node_states(record), problems
    except UserError as error:
        alive = repair.running_roles(record)
        words = {
            node.name: ("unknown", "the controller does not answer")
            for node in record.cluster.nodes
            if daemons.node_role(node) in alive
        }
        return words, problems or (f"{error.what}; {fix}",)


def _address(record: Record, index: int) -> str:
    return record.cluster.nodes[index].address if record.namespaces else f"127.0.0.1:{record.ports[2 + index]}"


def power_off(record: Record, name: str) -> None:
    """End every process of a node at once, as a power loss does."""
    node = record.cluster.node(name)
    if record.namespaces:
        daemons.disconnect(record, [node])
    state.kill(record, {daemons.node_role(node), f"job-{name}"}.__contains__)


def power_on(record: Record, name: str) -> None:
    """Start a node that was powered off; Slurm takes it back as soon as it answers."""
    daemons.start_nodes(record, [record.cluster.node(name)])
    wait_ready(record, [name])
    monitoring.ensure(record)


def restart_controller(record: Record) -> None:
    """Stop slurmctld as an upgrade would and start it again from its saved state."""
    state.kill(record, lambda role: role == "slurmctld", signal.SIGTERM)
    daemons.start_controller(record, fresh=False)
    wait_ready(record, [])


def kill_rank(record: Record, job: str, rank: int, sign: signal.Signals = signal.SIGKILL) -> int:
    """Kill one rank of a job and say which process it was; the oldest with that rank is the rank itself."""
    wanted = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_PROCID={rank}".encode()}
    for pid in sorted(state.processes(record)):
        with contextlib.suppress(OSError):
            words = set(environment(pid))
            if wanted <= words and any(word.startswith(b"RANK=") for word in words):
                os.kill(pid, sign)
                return pid
    raise UserError(f"job {job} has no rank {rank} running", fix="look at `trainwright jobs`")
