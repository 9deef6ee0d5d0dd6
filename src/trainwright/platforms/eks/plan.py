"""The files of an EKS plan: eksctl's cluster file, stacks, charts, objects, and scripts that deploy exactly these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from trainwright.platforms.annotated import plain, to_yaml
from trainwright.platforms.eks.charts import charts, kustomizations, manifests, needs
from trainwright.platforms.eks.cluster_file import ACCESS_FILE, additions, cluster_file, header
from trainwright.platforms.eks.karpenter import KINDS as KARPENTER_KINDS
from trainwright.platforms.eks.karpenter import karpenter_queues, karpenter_stack, node_objects
from trainwright.platforms.eks.neuron import neuron_objects
from trainwright.platforms.eks.objects import queue_objects, runtime_objects, storage_objects
from trainwright.platforms.monitoring.kubernetes import manifests as monitoring_manifests
from trainwright.platforms.plan.deploy import HOLD_DATA, SCRIPTS, stack_tags
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import StackPlan, Wiring, wire
from trainwright.schedulers.kubernetes.kinds import KINDS
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Spec

ZONES_OF_A_CONTROL_PLANE = 2
Upload = tuple[str, str, str]  # file of the plan, its checksum, its place in the bucket


def eks_wiring(setting: Setting) -> Wiring:
    wiring = wire(setting, bucket=False, cluster_owns_lustre=False, least_zones=ZONES_OF_A_CONTROL_PLANE)
    nodes = karpenter_stack(setting.spec)
    return replace(wiring, stacks=(*wiring.stacks, nodes)) if nodes is not None else wiring


def eks_files(setting: Setting, source: str, wiring: Wiring, uploads: Sequence[Upload] = ()) -> dict[str, str]:
    """File of the plan -> text, without the stacks' own. `uploads`: what nodes of HyperPod fetch."""
    spec = setting.spec
    cluster = cluster_file(setting, wiring.ids, wiring.zone_subnets)
    files = {
        "cluster.yaml": to_yaml(cluster, header(spec.name, source)),
        "charts.json": json.dumps(plain(charts(setting)), indent=2) + "\n",
        "kubernetes/queues.yaml": _documents(queue_objects(setting)),
    }
    more = additions(setting)
    files |= {name: to_yaml(data, _ADDED) for name, data in more.items()}
    files |= {name: _documents([data]) for name, data in kustomizations(setting).items()}
    nodes = node_objects(setting, wiring.ids, karpenter_stack(spec))
    if nodes:
        files["kubernetes/karpenter.yaml"] = _documents(nodes)
    plugin = neuron_objects(setting)
    if plugin:
        files["kubernetes/neuron.yaml"] = _documents(plugin)
    if "trainjob" in needs(setting):
        files["kubernetes/runtimes.yaml"] = _documents(runtime_objects())
    volumes = storage_objects(setting, wiring.ids, wiring.stacks)
    if volumes:
        files["kubernetes/storage.yaml"] = _documents(volumes)
    if spec.monitoring:
        files["kubernetes/monitoring.yaml"] = _documents(monitoring_manifests())
    return files | _scripts(setting, spec, wiring.stacks, uploads, more)


_ADDED = (
    "What deploy.sh adds to a cluster that was made before the spec asked for it; a new one has it of cluster.yaml."
)


def _documents(objects: Sequence[Mapping[str, Any]]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=120)


def _scripts(
    setting: Setting,
    spec: Spec,
    stacks: tuple[StackPlan, ...],
    uploads: Sequence[Upload],
    more: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    engine = shell_environment([Path(__file__).parent / "scripts", SCRIPTS], trim_blocks=True, lstrip_blocks=True)
    keys = [stack.key for stack in stacks]
    common = {"cluster": spec.name, "region": spec.region}
    deploy = engine.get_template("deploy.sh.j2").render(
        **common, stacks=keys, reasons={stack.key: stack.why for stack in stacks}, charts=charts(setting),
        manifests=manifests(setting), namespace=spec.kubernetes.namespace, uploads=uploads, tags=stack_tags(spec),
        blocks=_blocks(spec), access=ACCESS_FILE if ACCESS_FILE in more else "", identities=[
            (name, one["namespace"], one["serviceAccountName"])
            for name, data in more.items() for one in data.get("iam", {}).get("podIdentityAssociations", ())
        ],
    )  # fmt: skip
    kept = [stack.key for stack in stacks if stack.template in HOLD_DATA]
    undeploy = engine.get_template("undeploy.sh.j2").render(
        **common,
        removed=keys[::-1],
        kept=kept,
        karpenter=KARPENTER_KINDS if karpenter_queues(spec) else (),
        kinds=[f"{kind.plural}.{kind.group}" for kind in KINDS.values()],
        first=["hyperpod"] if uploads else [],
    )
    return {"deploy.sh": deploy, "undeploy.sh": undeploy}


def _blocks(spec: Spec) -> list[tuple[str, str, int]]:
    """Queue, capacity block and nodes of each node group that waits for its block. A queue that keeps no node up gets
    all that it may have: the block is paid for."""
    if spec.platform != "eks":
        return []
    on_blocks = [q for q in spec.queues if q.capacity.kind == "block" and q.provisioner != "karpenter"]
    return [(q.name, q.capacity.id, q.count.min or q.count.max) for q in on_blocks if q.capacity.id and q.count]
