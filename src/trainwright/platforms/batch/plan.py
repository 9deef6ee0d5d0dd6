"""The files of a Batch plan: one stack per queue (compute environment, launch template, job queue) behind the network
and storage that every platform has, and scripts that deploy exactly these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwright.catalog.instances import InstanceType
from trainwright.catalog.versions import version_set
from trainwright.platforms.plan.deploy import HOLD_DATA, SCRIPTS, stack_tags
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids, StackPlan, Wiring, wire
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Queue


def batch_wiring(setting: Setting) -> Wiring:
    """The network, the file systems, then one stack per queue."""
    wiring = wire(setting, bucket=False, cluster_owns_lustre=False)
    queues = [_queue(setting, queue, wiring) for queue in setting.spec.queues]
    return replace(wiring, stacks=(*wiring.stacks, *queues))


def _queue(setting: Setting, queue: Queue, wiring: Wiring) -> StackPlan:
    machine = setting.queue_instance(queue)
    assert queue.count is not None
    parameters = {
        "QueueName": setting.spec.batch.queues.get(queue.name, f"{setting.spec.name}-{queue.name}"),
        "InstanceType": machine.name,
        "MinVcpus": str(queue.count.min * machine.vcpus),
        "MaxVcpus": str(queue.count.max * machine.vcpus),
        "Disk": str(gib(queue.root_volume)),
        "ImageType": "ECS_AL2023_NVIDIA" if machine.is_gpu else "ECS_AL2023",
        **_network(queue, machine, wiring.ids),
        **_capacity(queue),
        **_lustre(setting, wiring),
    }
    scratch = next((item.mount for item in setting.spec.storage if item.nvme is not None), None)
    if scratch is not None and machine.nvme_gb > 0:
        parameters["Scratch"] = scratch
    if setting.spec.software.image.startswith("ami-"):
        parameters["Image"] = setting.spec.software.image
    return StackPlan(f"batch-{queue.name}", "batch", parameters, f"nodes and job queue of {queue.name}")


def _network(queue: Queue, machine: InstanceType, ids: Ids) -> dict[str, str]:
    assert ids.security_group is not None, "check: SPC007"
    parameters = {"Subnet": ids.private_subnets[0], "SecurityGroup": ids.security_group}
    if queue.efa:
        parameters |= {"Cards": str(machine.efa_cards), "EfaInstaller": str(version_set("default").efa)}
        if machine.network_cards > machine.efa_cards:
            parameters["FirstCardEfa"] = "false"
    return parameters


def _capacity(queue: Queue) -> dict[str, str]:
    kind, target = queue.capacity.kind, str(queue.capacity.id or "")
    if kind == "group":
        return {"ReservationGroup": target}
    if kind in ("reservation", "block"):
        return {"Reservation": target, **({"CapacityBlock": "true"} if kind == "block" else {})}
    if isinstance(queue.placement, str):
        return {"PlacementName": queue.placement}
    return {"Placement": "true"} if queue.placement else {}


def _lustre(setting: Setting, wiring: Wiring) -> dict[str, str]:
    """The file system that nodes mount at boot; containers get its folder from the node."""
    item = next((item for item in setting.spec.storage if item.lustre is not None), None)
    stack = next((stack for stack in wiring.stacks if item and stack.key == f"lustre-{item.stack_key}"), None)
    if item is None or stack is None:
        return {}
    return {
        "LustreDns": stack.output("DnsName"), "LustreMount": stack.output("MountName"), "LustreFolder": item.mount,
    }  # fmt: skip


def batch_scripts(setting: Setting, stacks: tuple[StackPlan, ...]) -> dict[str, str]:
    """deploy.sh and undeploy.sh: nothing but stacks."""
    engine = shell_environment([Path(__file__).parent / "scripts", SCRIPTS], trim_blocks=True, lstrip_blocks=True)
    keys = [stack.key for stack in stacks]
    common = {"cluster": setting.spec.name, "region": setting.spec.region}
    reasons = {stack.key: stack.why for stack in stacks}
    kept = [stack.key for stack in stacks if stack.template in HOLD_DATA]
    return {
        "deploy.sh": engine.get_template("deploy.sh.j2").render(
            **common, stacks=keys, reasons=reasons, tags=stack_tags(setting.spec)
        ),
        "undeploy.sh": engine.get_template("undeploy.sh.j2").render(**common, removed=keys[::-1], kept=kept),
    }
