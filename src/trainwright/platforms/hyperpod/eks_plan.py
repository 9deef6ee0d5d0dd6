"""The files of a HyperPod plan on EKS: a cluster of EKS as `platforms/eks` plans it, with its small nodes only, and the
HyperPod cluster whose nodes join it. HyperPod's chart stands on it before the first node does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.platforms.annotated import Why, to_yaml
from trainwright.platforms.eks.nodegroups import QUEUE_LABEL
from trainwright.platforms.eks.plan import ZONES_OF_A_CONTROL_PLANE, eks_files
from trainwright.platforms.hyperpod.cluster_file import ENTRY, cluster_file, header, queue_group
from trainwright.platforms.hyperpod.lifecycle import FOLDER, folder_key
from trainwright.platforms.hyperpod.plan import CLUSTER_FILE, HyperPodFiles, role_stack, uploads_of
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import Wiring, wire
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Script


def hyperpod_eks_wiring(setting: Setting) -> Wiring:
    """The network in two zones, the bucket, the file systems, then the role of the nodes."""
    wiring = wire(setting, bucket=True, cluster_owns_lustre=False, least_zones=ZONES_OF_A_CONTROL_PLANE)
    return replace(wiring, stacks=(*wiring.stacks, role_stack(setting, wiring, "eks")))


def hyperpod_eks_files(setting: Setting, source: str, wiring: Wiring) -> HyperPodFiles:
    """Everything but the stacks and the jobs."""
    spec = setting.spec
    # Nodes of EKS do not know their group: a queue with scripts of its own has its own entry.
    entries = {queue.name: f"on_create-{queue.name}.sh" for queue in spec.queues if queue.scripts}
    scripts = {ENTRY: _on_create(spec.name, ())}
    scripts |= {entries[queue.name]: _on_create(spec.name, queue.scripts) for queue in spec.queues if queue.scripts}
    folder = folder_key(spec.name, scripts)
    role = next(stack for stack in wiring.stacks if stack.key == "role").output("RoleArn")
    roles = {queue.name: role for queue in spec.queues}
    groups = [_group(setting, number) for number in range(len(spec.queues))]
    template = cluster_file(setting, wiring.ids, roles, f"s3://{wiring.ids.bucket}/{folder}/", groups, entries)
    template["Resources"]["Cluster"]["Properties"]["Orchestrator"] = _orchestrator(spec.name)
    files = {CLUSTER_FILE: to_yaml(template, header(spec.name, source, "after the charts of charts.json"))}
    files |= {f"{FOLDER}/{name}": text for name, text in scripts.items()}
    keys = {f"{FOLDER}/{name}": f"{folder}/{name}" for name in scripts}
    return HyperPodFiles({**files, **eks_files(setting, source, wiring, uploads_of(files, {}, keys))}, keys, {}, "")


def _group(setting: Setting, number: int) -> dict[str, Any]:
    queue = setting.spec.queues[number]
    labels = {"Labels": {QUEUE_LABEL: queue.name}}
    return {**queue_group(setting, queue), "KubernetesConfig": Why(labels, "Kueue's flavor of the queue asks for it")}


def _orchestrator(name: str) -> Why:
    arn = {"Fn::Sub": f"arn:${{AWS::Partition}}:eks:${{AWS::Region}}:${{AWS::AccountId}}:cluster/{name}"}
    return Why({"Eks": {"ClusterArn": arn}}, "the cluster of cluster.yaml; its charts stand before nodes join")


def _on_create(cluster: str, scripts: Sequence[Script]) -> str:
    engine = shell_environment(Path(__file__).parent / "scripts", trim_blocks=True, lstrip_blocks=True)
    own = [(script.source, script.args) for script in scripts]
    return engine.get_template("eks_on_create.sh.j2").render(cluster=cluster, own=own)
