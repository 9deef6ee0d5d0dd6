"""Slurm on the head node of a cluster on AWS, as `status` and `down` ask it. A head node that does not answer in time
leaves "unknown" and the reason, never "nothing"."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import yaml

from trainwright.aws.cloudformation import Stack
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account
from trainwright.errors import UserError
from trainwright.exporters.slurm import node_state
from trainwright.platforms.apply.base import Say
from trainwright.platforms.apply.status import SchedulerState
from trainwright.platforms.base import NodeStatus
from trainwright.platforms.parallelcluster.apply.cluster_steps import deployed_config
from trainwright.schedulers.slurm import SlurmScheduler

CONNECT, PATIENCE = 15, 40.0  # seconds: to reach the head node, and to have its answer
NODES = ("sinfo", "--noheader", "--Node", "--format=%N|%R|%T|%o|%E")


def config_of(cluster: Stack | None, account: Account) -> dict[str, Any]:
    """The deployed cluster file; empty where there is none."""
    text = deployed_config(cluster, BucketApi(account)) if cluster is not None else None
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if text else {}
    return data if isinstance(data, dict) else {}


def slurm_of(name: str, account: Account, config: Mapping[str, Any]) -> SlurmScheduler:
    """The Slurm of a cluster that is up: on this machine where it is the head node, else over ssh."""
    from trainwright.platforms.parallelcluster.platform import slurm_on_head
    from trainwright.platforms.parallelcluster.reach import CLOSED

    allowed = config.get("HeadNode", {}).get("Ssh", {}).get("AllowedIps")
    return slurm_on_head(name, account.region, opened=allowed not in (None, CLOSED))


def ask_nodes(slurm: Callable[[], SlurmScheduler], patience: float) -> Callable[[], SchedulerState]:
    """Ask for the nodes, and go on; what is returned waits for the answer until `patience` seconds after now."""
    end = time.monotonic() + patience
    try:
        shell = slurm().shell
        asked = subprocess.Popen(
            shell.argv(NODES), env=shell.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
    except (UserError, OSError) as error:
        reason = error.what if isinstance(error, UserError) else str(error)
        return lambda: SchedulerState(unknown=reason)

    def answer() -> SchedulerState:
        try:
            out, err = asked.communicate(timeout=max(end - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.communicate()
            return SchedulerState(unknown=f"no answer of the head node in {patience:g} s")
        if asked.returncode:
            words = err.strip().splitlines() or [f"sinfo ended with status {asked.returncode}"]
            return SchedulerState(unknown=words[-1])
        return SchedulerState(nodes=tuple(_node(line) for line in out.splitlines() if line.count("|") >= 4))

    return answer


def _node(line: str) -> NodeStatus:
    name, queue, state, address, reason = line.split("|", 4)
    return NodeStatus(name, queue, node_state(state), "" if reason == "none" else reason, address)


def jobs_on(name: str, account: Account, cluster: Stack | None, say: Say) -> list[str]:
    """A line for each job that waits or runs; UserError where that cannot be known."""
    return open_jobs(slurm_of(name, account, config_of(cluster, account)), say)


def open_jobs(slurm: SlurmScheduler, say: Say) -> list[str]:
    """A line for each job that waits or runs; UserError where that cannot be known. A head node that is gone must not
    keep `down` waiting."""
    say(f"jobs on {slurm.cluster}: asking its Slurm, for at most {PATIENCE:g} s")
    connect = ("-o", f"ConnectTimeout={CONNECT}", "-o", "ConnectionAttempts=1")
    shell = replace(slurm.shell, patience=PATIENCE, ssh_options=(*slurm.shell.ssh_options, *connect))
    jobs = replace(slurm, shell=shell).jobs()
    return [f"{job.id} {job.name} ({job.queue}, {job.state})" for job in jobs if not job.over]
