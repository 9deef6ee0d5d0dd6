"""The lifecycle scripts of a HyperPod cluster with Slurm: one entry that HyperPod calls, and a few steps. What the
boot scripts of ParallelCluster do already is rendered from the same templates."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwright.jobs.runtime import managed_runtime, shared_root
from trainwright.platforms.directory.join import join_script
from trainwright.platforms.hyperpod.cluster_file import CONTROLLER, ENTRY
from trainwright.platforms.parallelcluster.boot import COMPLETIONS, pins
from trainwright.platforms.parallelcluster.boot import HERE as PARALLELCLUSTER
from trainwright.platforms.parallelcluster.monitoring import monitoring_values
from trainwright.platforms.parallelcluster.runtime import shipment
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import Ids, StackPlan
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Spec, Storage

HERE = Path(__file__).parent
FOLDER = "lifecycle"
FACTS = "node_facts.py"
PARAMETERS = "provisioning_parameters.json"
NODE_FILE = "/etc/trainwright/node"  # what a node is, written by the entry script
LUSTRE_OPTIONS = ("noatime", "flock", "_netdev", "nofail")
EFA_CLIENT = (
    "configure-efa-fsx-lustre-client.service"  # AWS's set-up of the client, at every boot; mounts come after it
)
DISK = "/opt/sagemaker"  # where HyperPod mounts a node's second disk


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """A script that nodes run, in the order of the list."""

    name: str
    text: str
    why: str
    nodes: Literal["all", "head", "queues"] = "all"


def lifecycle_files(setting: Setting, ids: Ids, stacks: tuple[StackPlan, ...]) -> dict[str, str]:
    """Name in the folder -> text. Values may name outputs of stacks, which are filled in before the upload."""
    spec = setting.spec
    steps = lifecycle_steps(setting, ids, stacks)
    files = {step.name: step.text for step in steps}
    files[FACTS] = (HERE / "scripts" / FACTS).read_text(encoding="utf-8")
    files[PARAMETERS] = json.dumps(provisioning_parameters(spec, stacks), indent=2) + "\n"
    files[ENTRY] = _render(
        "on_create.sh.j2",
        cluster=spec.name,
        host=f"s3.{spec.region}.amazonaws.com",
        **{"from": f"s3://{ids.bucket}/trainwright/{spec.name}"},
        steps=[(step.name, step.nodes, step.why) for step in steps],
        own=_own(spec),
    )
    return files


def folder_key(cluster: str, files: dict[str, str]) -> str:
    """The folder of the files in the bucket, named by their content: a node runs exactly what was planned."""
    content = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()
    return f"trainwright/{cluster}/{FOLDER}-{content[:16]}"


def provisioning_parameters(spec: Spec, stacks: tuple[StackPlan, ...]) -> dict[str, Any]:
    """What HyperPod's agent reads: which group is the controller, and the partition of each other one."""
    by_key = {stack.key: stack for stack in stacks}
    lustre = next((by_key[f"lustre-{s.stack_key}"] for s in spec.storage if f"lustre-{s.stack_key}" in by_key), None)
    mount = {"fsx_dns_name": lustre.output("DnsName"), "fsx_mountname": lustre.output("MountName")} if lustre else {}
    return {
        "version": "1.0.0",
        "workload_manager": "slurm",
        "controller_group": CONTROLLER,
        "worker_groups": [{"instance_group_name": q.name, "partition_name": q.name} for q in spec.queues],
        **mount,
    }


def lifecycle_steps(setting: Setting, ids: Ids, stacks: tuple[StackPlan, ...]) -> tuple[LifecycleStep, ...]:
    """The steps that this spec needs, in order."""
    spec = setting.spec
    scratch = next((s.mount for s in spec.storage if s.nvme is not None), DISK)
    runtimes = (spec.software.containers or "none").split("+")
    steps: list[LifecycleStep] = []
    if any(s.lustre is not None and s.lustre.efa for s in spec.storage):
        text = _render("lustre-efa.sh.j2", pins=pins()["lustre_efa"])
        steps.append(LifecycleStep("lustre-efa.sh", text, "the Lustre client takes EFA up before it mounts", "queues"))
    if spec.storage:
        steps.append(LifecycleStep("storage.sh", _storage(spec, ids, stacks), "file systems, now and at every boot"))
    steps.append(LifecycleStep("users.sh", _users(spec), "accounts under the same numbers on every node"))
    if ids.directory is not None:
        homes = _homes(spec)
        text = join_script(ids.directory, spec.region or "", "" if homes == "/home" else homes)
        steps.append(LifecycleStep("directory.sh", text, "users and their ssh keys from the directory"))
    if "docker" in runtimes:
        text = _render("docker.sh.j2", scratch=scratch, os=spec.software.os, pins=pins()["docker"])
        steps.append(LifecycleStep("docker.sh", text, "containers by docker"))
    if "enroot" in runtimes:
        text = _render("enroot.sh.j2", scratch=scratch, os=spec.software.os, install=pins()["enroot"])
        steps.append(LifecycleStep("enroot.sh", text, "containers by Slurm: srun --container-image"))
    if spec.accounting is None and "JobCompType" not in spec.slurm:
        text = _render("completions.sh.j2", folder=COMPLETIONS)
        steps.append(LifecycleStep("completions.sh", text, "a log of finished jobs, where no database is", "head"))
    steps.append(LifecycleStep("slurm.sh", _slurm(spec, ids), "Slurm's daemons, with the settings of the spec"))
    if managed_runtime(spec):
        text = _render("runtime.sh.j2", **shipment(setting).values())
        steps.append(LifecycleStep("runtime.sh", text, "PyTorch for the jobs, once, on the shared file system", "head"))
    if spec.monitoring:
        text = _render("monitoring.sh.j2", **monitoring_values(spec, pins()["monitoring"]))
        steps.append(LifecycleStep("monitoring.sh", text, "node metrics, gathered by a Prometheus on the head node"))
    return tuple(steps)


def _storage(spec: Spec, ids: Ids, stacks: tuple[StackPlan, ...]) -> str:
    by_key = {stack.key: stack for stack in stacks}
    mounts = [_mount(item, ids, by_key) for item in spec.storage]
    efa = any(item.lustre is not None and item.lustre.efa for item in spec.storage)
    options = [*LUSTRE_OPTIONS, *([f"x-systemd.after={EFA_CLIENT}"] if efa else [])]
    nfs = any(mount["kind"] in ("openzfs", "efs") for mount in mounts)
    return _render("storage.sh.j2", mounts=mounts, nfs=nfs, lustre=",".join(options))


def _mount(item: Storage, ids: Ids, stacks: dict[str, StackPlan]) -> dict[str, str]:
    stack = stacks.get(f"{item.kind}-{item.stack_key}")
    made = {"dns": stack.output("DnsName")} if stack is not None else {"dns": ""}
    if item.lustre is not None:
        made["name"] = stack.output("MountName") if stack is not None else ""
    return {"kind": item.kind, "folder": item.mount, "id": ids.file_systems.get(item.mount, ""), **made}


def _users(spec: Spec) -> str:
    return _render(
        "users.sh.j2",
        users=[] if spec.directory else [user.model_dump() for user in spec.users],
        homes=_homes(spec),
        head_key=spec.head.key,
    )


def _homes(spec: Spec) -> str:
    """The folder of people's homes, which all nodes share."""
    first = shared_root(spec).removesuffix("/trainwright")
    return (
        "/home" if any(folder == "/home" for folder in (first, *(s.mount for s in spec.storage))) else f"{first}/home"
    )


def _slurm(spec: Spec, ids: Ids) -> str:
    settings: dict[str, Any] = dict(spec.slurm)
    if not ids.database and "JobCompType" not in settings:
        settings |= {"JobCompType": "jobcomp/filetxt", "JobCompLoc": f"{COMPLETIONS}/completed.log"}
    database = {**ids.database, "database": f"slurm_acct_{re.sub('[^a-z0-9]', '_', spec.name.lower())}"}
    lines = [f"{name}={value}" for name, value in settings.items()]
    mounts = [item.mount for item in spec.storage if item.nvme is None]  # not every node has disks of its own
    return _render("slurm.sh.j2", settings=lines, accounting=database if ids.database else None, mounts=mounts)


def _own(spec: Spec) -> list[tuple[str, str, tuple[str, ...]]]:
    """The user's own scripts, by instance group."""
    groups = [(CONTROLLER, spec.head.scripts), *((queue.name, queue.scripts) for queue in spec.queues)]
    return [(group, script.source, script.args) for group, scripts in groups for script in scripts]


def _render(name: str, **values: Any) -> str:
    """One script, from this folder or ParallelCluster's; every value is quoted for the shell."""
    folders = [HERE / "scripts", PARALLELCLUSTER / "scripts"]
    engine = shell_environment(folders, trim_blocks=True, lstrip_blocks=True)
    return engine.get_template(name).render(**{"node_file": NODE_FILE, **values})
