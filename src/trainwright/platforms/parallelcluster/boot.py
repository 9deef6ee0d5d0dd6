"""Boot scripts of ours: container runtimes, the Python environment, monitoring, written as pinned files of the plan.
Nodes fetch them from the bucket under a name that holds their hash, so that a node runs exactly what was planned."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainwright.jobs.runtime import managed_runtime
from trainwright.platforms.annotated import Why
from trainwright.platforms.directory.join import certificate_script, keys_script
from trainwright.platforms.parallelcluster.monitoring import monitoring_values
from trainwright.platforms.parallelcluster.runtime import shipment
from trainwright.platforms.setting import Setting
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Queue, Script, Spec

HERE = Path(__file__).parent
COMPLETIONS = "/var/lib/trainwright/slurm"  # of the head node; Slurm's user may write there
NODE_FILE = "/etc/parallelcluster/cfnconfig"  # what a node is, written by ParallelCluster
_STAGES = ("OnNodeStart", "OnNodeConfigured", "OnNodeUpdated")


@dataclass(frozen=True, slots=True)
class BootScript:
    """A script the plan writes and a node runs once: before it is configured or after."""

    name: str
    text: str
    why: str
    stage: Literal["OnNodeStart", "OnNodeConfigured"] = "OnNodeConfigured"
    nodes: Literal["all", "head", "queues"] = "all"
    folder: str = ""  # its fixed place; a changed script of another one gets another address
    args: tuple[str, ...] = ()
    update: str = ""  # runs again when this text changes on a cluster that is up

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def key(self, cluster: str) -> str:
        """Its address in the bucket."""
        return f"trainwright/{cluster}/{self.folder or self.digest[:16]}/{self.name}"


@cache
def pins() -> dict[str, Any]:
    """Versions of what the scripts install."""
    return tomllib.loads((HERE / "data" / "pins.toml").read_text(encoding="utf-8"))


def boot_scripts(setting: Setting) -> tuple[BootScript, ...]:
    """The scripts that nodes of the cluster run."""
    spec = setting.spec
    scripts: list[BootScript] = []
    scratch = next((s.mount for s in spec.storage if s.nvme is not None), None)
    runtimes = (spec.software.containers or "none").split("+")
    if spec.accounting is None and "JobCompType" not in spec.slurm:
        text = render("completions.sh.j2", folder=COMPLETIONS)
        why = "Slurm forgets a job five minutes after its end, unless it may write a log"
        scripts.append(BootScript("completions.sh", text, why, "OnNodeStart", "head"))
    if any(s.lustre is not None and s.lustre.efa for s in spec.storage):
        text = render("lustre-efa.sh.j2", pins=pins()["lustre_efa"])
        why = "the Lustre client uses EFA only when it is set up before the file system is mounted"
        scripts.append(BootScript("lustre-efa.sh", text, why, "OnNodeStart", "queues"))
    scripts += _directory(spec)
    if "enroot" in runtimes:
        text = render("enroot.sh.j2", scratch=scratch, os=spec.software.os, install=None)
        scripts.append(BootScript("enroot.sh", text, "ParallelCluster ships enroot and pyxis switched off"))
    if "docker" in runtimes:
        text = render("docker.sh.j2", scratch=scratch, os=spec.software.os, pins=pins()["docker"])
        scripts.append(BootScript("docker.sh", text, "the stock image has no docker"))
    if managed_runtime(spec):
        text = render("runtime.sh.j2", **shipment(setting).values())
        why = "PyTorch for the jobs, made once on the shared file system"
        scripts.append(BootScript("runtime.sh", text, why, nodes="head"))
    if spec.monitoring:
        text = render("monitoring.sh.j2", **monitoring_values(spec, pins()["monitoring"]))
        scripts.append(BootScript("monitoring.sh", text, "node metrics, gathered by a Prometheus on the head node"))
    return (*scripts, *_head(scripts, spec.name))


def _directory(spec: Spec) -> list[BootScript]:
    """ParallelCluster sets sssd up by itself; it wants the certificate there, and does not ask it for ssh keys."""
    if spec.directory is None:
        return []
    scripts: list[BootScript] = []
    certificate_nodes: tuple[Literal["head", "all"], ...] = ("head", "all")
    if spec.directory.uri is None:
        text = certificate_script(spec.name, spec.region or "")
        why = "nodes trust the directory by its own certificate, before they first ask it"
        for nodes in certificate_nodes:  # the first scripts of the head node stand by themselves
            scripts.append(BootScript("directory-ca.sh", text, why, "OnNodeStart", nodes, args=("{bucket}",)))
    why = "sshd takes a user's keys from the directory"
    return [*scripts, BootScript("directory.sh", keys_script(spec.region or ""), why, nodes="head")]


def _head(scripts: Sequence[BootScript], cluster: str) -> list[BootScript]:
    """The script that runs the others on the head node, from an address that stays the same: ParallelCluster does not
    let a head node's first scripts change. Its update step names what changed."""
    configured = [script for script in scripts if script.stage == "OnNodeConfigured"]
    if not configured:
        return []
    folder = f"trainwright/{cluster}"
    steps = [(script.key(cluster).removeprefix(f"{folder}/"), script.digest) for script in configured]
    text = render("head.sh.j2", scripts=steps)
    why = f"runs {', '.join(script.name for script in configured)} of this plan"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return [BootScript("head.sh", text, why, nodes="head", folder="head", args=("{bucket}/" + folder,), update=digest)]


def actions(scripts: Sequence[BootScript], own: tuple[Script, ...], cluster: str, bucket: str | None) -> dict[str, Any]:
    """The CustomActions of a node: our scripts first, then the user's, in order. Empty without any."""
    steps: dict[str, list[Any]] = {stage: [] for stage in _STAGES}
    for script in scripts:
        step: dict[str, Any] = {"Script": f"s3://{bucket}/{script.key(cluster)}"}
        args = [word.replace("{bucket}", f"s3://{bucket}") for word in script.args]
        if args:
            step["Args"] = args
        steps[script.stage].append(Why(step, f"{script.why} (scripts/{script.name} of this plan)"))
        if script.update:
            again = {**step, "Args": [*args, script.update]}
            steps["OnNodeUpdated"].append(Why(again, "the last word names its version: another one runs it again"))
    steps["OnNodeConfigured"] += [{"Script": s.source, **({"Args": list(s.args)} if s.args else {})} for s in own]
    return {stage: {"Sequence": each} for stage, each in steps.items() if each}


def head_scripts(scripts: Sequence[BootScript]) -> list[BootScript]:
    """What ParallelCluster runs on the head node; our own script there runs the others."""
    return [s for s in scripts if s.nodes == "head" and (s.stage == "OnNodeStart" or s.folder)]


def queue_scripts(scripts: Sequence[BootScript], queue: Queue) -> list[BootScript]:
    """What the nodes of a queue run; Lustre over EFA is for nodes with EFA, and AWS has no client for trn2."""
    efa = bool(queue.efa) and not (queue.instance or "").startswith(("trn2.", "trn2u."))
    return [s for s in scripts if s.nodes != "head" and (efa or s.nodes != "queues")]


def render(name: str, **values: Any) -> str:
    """One script of this folder, filled in; every value is quoted for the shell."""
    engine = shell_environment(HERE / "scripts", trim_blocks=True, lstrip_blocks=True)
    return engine.get_template(name).render(**{"node_file": NODE_FILE, **values})
