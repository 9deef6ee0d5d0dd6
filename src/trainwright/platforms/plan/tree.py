"""A plan is a folder: the cluster file, the stacks with their parameters, the boot scripts, and plan.json with the
price. Made in memory first, so that a mistake leaves nothing half written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainwright import __version__, folders
from trainwright.check.finding import Finding
from trainwright.check.gate import require_clean
from trainwright.errors import UserError
from trainwright.folders import digests, write_folder
from trainwright.jobs.resolve import resolve_jobs
from trainwright.jobs.resolved import ResolvedJob
from trainwright.platforms.annotated import to_yaml
from trainwright.platforms.plan.bill import Bill, bill
from trainwright.platforms.setting import Setting
from trainwright.platforms.tags import cluster_tags
from trainwright.platforms.wiring import StackPlan, Wiring, check_parameters, wire
from trainwright.platforms.zones import Offers, choose_zones, zone_doubts
from trainwright.spec.defaults import Default, resolve
from trainwright.spec.load import LoadedSpec
from trainwright.spec.model import Spec
from trainwright.stacks.library import template

PLANNED = ("parallelcluster", "eks", "batch", "hyperpod", "hyperpod-eks", "local")
RECORD = "plan.json"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Everything that would be deployed for one spec."""

    spec: Spec
    source: str
    defaults: tuple[Default, ...]
    stacks: tuple[StackPlan, ...]
    files: Mapping[str, str]
    bill: Bill
    scripts: Mapping[str, str]  # file of the plan that nodes fetch -> place in the bucket
    archives: Mapping[str, bytes] = field(default_factory=dict)  # files that are not text
    jobs: tuple[ResolvedJob, ...] = ()
    findings: tuple[Finding, ...] = ()  # what `check` says about the spec; no errors
    notes: tuple[str, ...] = ()  # what a user should know before it is built
    own_stacks: tuple[StackPlan, ...] = ()  # EKS without eksctl: what takes the place of its cluster.yaml

    def content(self, name: str) -> bytes:
        """The bytes of a file of the plan."""
        return self.archives[name] if name in self.archives else self.files[name].encode()


def make_plan(loaded: LoadedSpec, offers: Offers | None = None) -> ClusterPlan:
    """The plan of a spec; a spec with errors is refused with all of them. `offers`: instance type -> zone ids, where
    AWS was asked."""
    spec, defaults = resolve(loaded.spec)
    findings = tuple(require_clean(loaded).findings)
    if spec.platform not in PLANNED:
        raise UserError(
            f"`plan` does not write files for platform {spec.platform} yet",
            where=loaded.where("platform"),
            fix=f"it does for {' and '.join(PLANNED)}; the spec itself has no errors",
        )
    jobs = tuple(resolution.require() for resolution in resolve_jobs(loaded))
    source = Path(loaded.path).name
    if spec.platform == "local":
        return ClusterPlan(spec, source, defaults, (), {}, Bill("", ()), {}, {}, jobs, findings)
    planners = {
        "parallelcluster": _parallelcluster, "eks": _eks, "batch": _batch, "hyperpod": _hyperpod,
        "hyperpod-eks": _hyperpod_eks,
    }  # fmt: skip
    return replace(planners[spec.platform](Setting(spec, offers), source, defaults, jobs), findings=findings)


def _parallelcluster(
    setting: Setting, source: str, defaults: tuple[Default, ...], jobs: tuple[ResolvedJob, ...]
) -> ClusterPlan:
    from trainwright.jobs.runtime import managed_runtime
    from trainwright.platforms.parallelcluster.boot import boot_scripts
    from trainwright.platforms.parallelcluster.render import cluster_file, header
    from trainwright.platforms.parallelcluster.runtime import shipment
    from trainwright.platforms.plan.deploy import deploy_scripts
    from trainwright.platforms.plan.jobs import job_scripts

    spec = setting.spec
    scripts = boot_scripts(setting)
    wiring = wire(setting, bucket=bool(scripts), cluster_owns_lustre=True)
    cluster = cluster_file(setting, scripts, wiring.ids)
    files = {"cluster.yaml": to_yaml(cluster, header(spec.name, source))}
    for stack in wiring.stacks:
        files |= _stack_files(stack, spec)
    files |= {f"scripts/{script.name}": script.text for script in scripts}
    ship = shipment(setting) if managed_runtime(spec) else None
    files |= {**(ship.texts if ship else {}), **job_scripts(jobs, ship.code if ship else "")}
    keys = {f"scripts/{script.name}": script.key(spec.name) for script in scripts} | (ship.keys if ship else {})
    zone = _zone(setting, wiring.zones)
    plan = ClusterPlan(
        spec, source, (*defaults, *zone[0]), wiring.stacks, files, bill(setting, wiring.stacks), keys,
        ship.archives if ship else {}, jobs, notes=zone[1],
    )  # fmt: skip
    uploads = {name: plan.content(name) for name in keys}
    return replace(plan, files={**files, **deploy_scripts(spec, wiring.stacks, uploads, keys)})


def _zone(setting: Setting, count: int) -> tuple[list[Default], tuple[str, ...]]:
    """The zone that was chosen for a spec that leaves it open, as a default with its reason, and what is doubtful."""
    spec = setting.spec
    if spec.network.private_subnet is not None:
        return [], ()
    if spec.zone is not None:
        return [], zone_doubts(spec, setting.offers)
    choice = choose_zones(spec, count, setting.offers)
    return [Default("zone", choice.zones[0], choice.why)], choice.notes


def _eks(setting: Setting, source: str, defaults: tuple[Default, ...], jobs: tuple[ResolvedJob, ...]) -> ClusterPlan:
    from trainwright.platforms.eks.own_stacks import own_stacks
    from trainwright.platforms.eks.plan import eks_files, eks_wiring

    wiring = eks_wiring(setting)
    own = own_stacks(setting, wiring)
    files = {**eks_files(setting, source, wiring), **_without_eksctl(own, setting.spec)}
    return replace(_of_containers(setting, source, defaults, jobs, wiring, files), own_stacks=own)


def _without_eksctl(own: tuple[StackPlan, ...], spec: Spec) -> dict[str, str]:
    """The stacks that take the place of cluster.yaml, in a folder of their own: deploy.sh does not deploy them."""
    files: dict[str, str] = {}
    for stack in own:
        made = _stack_files(stack, spec)
        files |= {name.replace("stacks/", "without-eksctl/"): text for name, text in made.items()}
    return files


def _batch(setting: Setting, source: str, defaults: tuple[Default, ...], jobs: tuple[ResolvedJob, ...]) -> ClusterPlan:
    from trainwright.platforms.batch.plan import batch_scripts, batch_wiring

    wiring = batch_wiring(setting)
    return _of_containers(setting, source, defaults, jobs, wiring, batch_scripts(setting, wiring.stacks))


def _of_containers(
    setting: Setting,
    source: str,
    defaults: tuple[Default, ...],
    jobs: tuple[ResolvedJob, ...],
    wiring: Wiring,
    files: Mapping[str, str],
) -> ClusterPlan:
    """A plan whose jobs bring their software in an image: stacks, the platform's own files, and the jobs."""
    from trainwright.platforms.plan.jobs import container_jobs

    texts = {**files, **container_jobs(jobs)}
    for stack in wiring.stacks:
        texts |= _stack_files(stack, setting.spec)
    zone = _zone(setting, wiring.zones)
    return ClusterPlan(
        setting.spec, source, (*defaults, *zone[0]), wiring.stacks, texts, bill(setting, wiring.stacks), {}, {}, jobs,
        notes=zone[1],
    )  # fmt: skip


def _hyperpod(
    setting: Setting, source: str, defaults: tuple[Default, ...], jobs: tuple[ResolvedJob, ...]
) -> ClusterPlan:
    from trainwright.platforms.hyperpod.plan import hyperpod_files, hyperpod_wiring
    from trainwright.platforms.plan.jobs import job_scripts

    wiring = hyperpod_wiring(setting)
    made = hyperpod_files(setting, source, wiring)
    files = {**made.files, **job_scripts(jobs, made.code)}
    for stack in wiring.stacks:
        files |= _stack_files(stack, setting.spec)
    zone = _zone(setting, wiring.zones)
    return ClusterPlan(
        setting.spec, source, (*defaults, *zone[0]), wiring.stacks, files, bill(setting, wiring.stacks), made.keys,
        made.archives, jobs, notes=zone[1],
    )  # fmt: skip


def _hyperpod_eks(
    setting: Setting, source: str, defaults: tuple[Default, ...], jobs: tuple[ResolvedJob, ...]
) -> ClusterPlan:
    from trainwright.platforms.eks.own_stacks import own_stacks
    from trainwright.platforms.hyperpod.eks_plan import hyperpod_eks_files, hyperpod_eks_wiring

    wiring = hyperpod_eks_wiring(setting)
    made, own = hyperpod_eks_files(setting, source, wiring), own_stacks(setting, wiring)
    files = {**made.files, **_without_eksctl(own, setting.spec)}
    plan = _of_containers(setting, source, defaults, jobs, wiring, files)
    return replace(plan, scripts=made.keys, own_stacks=own)


def _stack_files(stack: StackPlan, spec: Spec) -> dict[str, str]:
    check_parameters(stack)
    parameters = [{"ParameterKey": k, "ParameterValue": v} for k, v in stack.parameters.items()]
    return {
        f"stacks/{stack.key}.yaml": template(stack.template).tagged(cluster_tags(spec)),
        f"stacks/{stack.key}.parameters.json": json.dumps(parameters, indent=2) + "\n",
    }


def record(plan: ClusterPlan, files: Mapping[str, str]) -> dict[str, Any]:
    """The facts of a plan, for plan.json and `--json`."""
    return {
        "trainwright": __version__,
        "cluster": {
            "name": plan.spec.name,
            "platform": plan.spec.platform,
            "region": plan.spec.region,
            "spec": plan.source,
        },
        "stacks": [
            {
                "stack": f"{plan.spec.name}-{stack.key}",
                "template": f"stacks/{stack.key}.yaml",
                "parameters": f"stacks/{stack.key}.parameters.json",
                "why": stack.why,
            }
            for stack in plan.stacks
        ],
        "scripts": dict(plan.scripts),
        "price": _price(plan.bill),
        "defaults": [{"path": d.path, "value": d.value, "why": d.why} for d in plan.defaults],
        "files": digests(files, plan.archives),
    }


def _price(found: Bill) -> dict[str, Any]:
    return {
        "currency": "USD",
        "hour_idle": round(found.usd_hour_idle, 4),
        "hour_full": round(found.usd_hour_full, 4),
        "month_idle": round(found.usd_month_idle, 2),
        "month_full": round(found.usd_month_full, 2),
        "dates": list(found.dates),
        "parts": [
            {
                "part": line.part,
                "what": line.what,
                "least": line.least,
                "most": line.most,
                "hour_each": None if line.usd_hour_each is None else round(line.usd_hour_each, 6),
                "date": line.date,
                "note": line.note,
            }
            for line in found.lines
        ],
    }


def earlier_files(folder: Path) -> dict[str, str] | None:
    """The text files of the plan that stands in a folder; None when the folder is new. Anything else is not
    overwritten."""
    return folders.earlier_files(folder, RECORD, "plan", "-o")


def write(
    plan: ClusterPlan, folder: Path, extra: Mapping[str, str], earlier: Mapping[str, str] | None
) -> dict[str, Any]:
    """Write the plan's files and `extra` ones, remove those of the earlier plan that are gone; returns the record."""
    files = {**plan.files, **extra}
    facts = record(plan, files)
    write_folder(folder, files, plan.archives, RECORD, facts, earlier, "-o")
    return facts
