"""The files of a HyperPod plan: the cluster as one CloudFormation template, the lifecycle scripts that its nodes run,
and scripts that deploy exactly these."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.jobs.runtime import managed_runtime
from trainwright.platforms.annotated import Why, to_yaml
from trainwright.platforms.hyperpod.cluster_file import CONTROLLER, cluster_file, controller_group, header, queue_group
from trainwright.platforms.hyperpod.lifecycle import FOLDER, folder_key, lifecycle_files
from trainwright.platforms.parallelcluster.access import job_buckets, partition_of
from trainwright.platforms.parallelcluster.runtime import shipment
from trainwright.platforms.plan.deploy import HOLD_DATA, SCRIPTS, stack_tags
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import StackPlan, Wiring, wire
from trainwright.shell_templates import shell_environment

CLUSTER_FILE = "hyperpod.yaml"


@dataclass(frozen=True, slots=True)
class HyperPodFiles:
    """What a plan holds beside its stacks."""

    files: Mapping[str, str]
    keys: Mapping[str, str]  # file of the plan that nodes fetch -> place in the bucket
    archives: Mapping[str, bytes]
    code: str  # folder of our node side on the cluster; empty where none is shipped


def hyperpod_wiring(setting: Setting) -> Wiring:
    """The network, the bucket, the file systems, the database, then the role of the nodes."""
    wiring = wire(setting, bucket=True, cluster_owns_lustre=False)
    return replace(wiring, stacks=(*wiring.stacks, role_stack(setting, wiring, "slurm")))


def role_stack(setting: Setting, wiring: Wiring, orchestrator: str) -> StackPlan:
    spec = setting.spec
    partition = partition_of(spec.region or "")
    buckets = {name: f"arn:{partition}:s3:::{name}" for name in job_buckets(setting)}
    written = [f"{buckets[name]}/*" for name, write in job_buckets(setting).items() if write]
    reads = [arn for bucket in buckets.values() for arn in (bucket, f"{bucket}/*")]
    own = [script.source for scripts in (spec.head.scripts, *(q.scripts for q in spec.queues)) for script in scripts]
    reads += [f"arn:{partition}:s3:::{source.removeprefix('s3://')}" for source in own if source.startswith("s3://")]
    parameters = {
        "ClusterName": spec.name,
        "Bucket": str(wiring.ids.bucket),
        "Orchestrator": orchestrator,
        **({"Secret": wiring.ids.database["secret"]} if wiring.ids.database else {}),
        **({"DirectorySecret": wiring.ids.directory.secret} if wiring.ids.directory else {}),
        **({"ReadBuckets": ",".join(reads)} if reads else {}),
        **({"WriteBuckets": ",".join(written)} if written else {}),
        **({"RemoteWrite": "true"} if spec.monitoring and spec.monitoring.remote_write else {}),
    }
    return StackPlan("role", "role", parameters, "what the nodes may do in the account, the controller apart")


def hyperpod_files(setting: Setting, source: str, wiring: Wiring) -> HyperPodFiles:
    """Everything but the stacks."""
    spec = setting.spec
    scripts = lifecycle_files(setting, wiring.ids, wiring.stacks)
    folder = folder_key(spec.name, scripts)
    groups = [controller_group(setting, wiring.ids), *(queue_group(setting, queue) for queue in spec.queues)]
    template = cluster_file(setting, wiring.ids, _roles(setting, wiring), f"s3://{wiring.ids.bucket}/{folder}/", groups)
    ship = shipment(setting) if managed_runtime(spec) else None
    files = {CLUSTER_FILE: to_yaml(template, header(spec.name, source, "after the lifecycle scripts were uploaded"))}
    files |= {f"{FOLDER}/{name}": text for name, text in sorted(scripts.items())}
    files |= ship.texts if ship else {}
    keys = {f"{FOLDER}/{name}": f"{folder}/{name}" for name in sorted(scripts)} | (ship.keys if ship else {})
    archives = ship.archives if ship else {}
    files |= _deploy_scripts(setting, wiring.stacks, uploads_of(files, archives, keys))
    return HyperPodFiles(files, keys, archives, ship.code if ship else "")


def _roles(setting: Setting, wiring: Wiring) -> dict[str, str | Why]:
    """Instance group -> role. Jobs use that of their nodes."""
    stack = next(stack for stack in wiring.stacks if stack.key == "role")
    why = "jobs run under the other one, which cannot read the password of the database"
    controller = Why(stack.output("ControllerRoleArn"), why)
    return {CONTROLLER: controller, **{queue.name: stack.output("RoleArn") for queue in setting.spec.queues}}


def uploads_of(
    files: Mapping[str, str], archives: Mapping[str, bytes], keys: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """(file, checksum as planned, place in the bucket)."""
    contents = {**{name: text.encode() for name, text in files.items()}, **archives}
    return [(name, hashlib.sha256(contents[name]).hexdigest(), key) for name, key in sorted(keys.items())]


def _deploy_scripts(
    setting: Setting, stacks: tuple[StackPlan, ...], uploads: list[tuple[str, str, str]]
) -> dict[str, str]:
    engine = shell_environment([Path(__file__).parent / "scripts", SCRIPTS], trim_blocks=True, lstrip_blocks=True)
    keys = [stack.key for stack in stacks]
    common = {"cluster": setting.spec.name, "region": setting.spec.region}
    reasons = {stack.key: stack.why for stack in stacks}
    kept = [stack.key for stack in stacks if stack.template in HOLD_DATA]
    deploy = engine.get_template("deploy.sh.j2").render(
        **common, stacks=keys, reasons=reasons, uploads=uploads, tags=stack_tags(setting.spec)
    )
    undeploy = engine.get_template("undeploy.sh.j2").render(**common, removed=["hyperpod", *keys[::-1]], kept=kept)
    return {"deploy.sh": deploy, "undeploy.sh": undeploy}
