"""SPC: the network of a spec: created whole, or named whole."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.offerings import zones_of
from trainwright.catalog.regions import find_region, region, zone_kind
from trainwright.check.model import CheckedSpec, File
from trainwright.check.registry import Problem, rule
from trainwright.check.rules.spc_cluster import HYPERPOD, at
from trainwright.errors import UserError

TWO_ZONES = 2  # of a database, and of the control plane of EKS


@rule("SPC007", "error")
def network_is_complete(file: File) -> Iterator[Problem]:
    """A spec's network must be either created whole or named whole, in zones that exist.

    An existing network names both subnets (and the VPC and security group where file systems or a database are created
    in it); a created one may name its zones, all by id or all by name, in the spec's region, and as many as it needs: a
    database stands in two, and so does the control plane of EKS.

    Why: half a network cannot be completed by a stack, and a cluster in the wrong zone finds no reservation, which
    is in one of the 3 to 6 zones of a region.

    Fix: name what is missing, or leave `network` out and one is created.

    Source: the templates under stacks/; EC2, zone ids; AWS, regions and zones.

    When to ignore: never; `plan` stops at it.
    """
    for spec in file.specs:
        if platforms()[spec.full.platform].on_aws:
            yield from _region(spec)
            yield from _existing(spec)
            yield from _zones(spec)
        if spec.full.platform in ("eks", "hyperpod-eks"):
            yield from _eks_network(spec)
        if spec.full.platform == "batch":
            yield from _batch_storage(spec)
        if spec.full.platform == "hyperpod":
            yield from _hyperpod_storage(spec)
        if spec.full.platform in ("batch", *HYPERPOD):
            yield from _named_group(spec)


def _eks_network(spec: CheckedSpec) -> Iterator[Problem]:
    full = spec.full
    if full.network.private_subnet is not None and len(set(full.kubernetes.subnets)) < TWO_ZONES:
        yield at(
            spec, "network", "private_subnet", what="EKS wants subnets in two zones for its control plane",
            fix="name them: `kubernetes: {subnets: [subnet-…, subnet-…]}`, or leave `network` out and one is created",
        )  # fmt: skip
    for index, item in enumerate(full.storage):
        existing = (item.lustre is not None and item.lustre.id is not None) or item.openzfs is not None
        if existing and item.mount not in full.kubernetes.claims:
            yield at(
                spec, "storage", index, what=f"pods mount {item.mount} through a claim that the plan does not make",
                fix=f"make both by hand, and name the claim: `kubernetes: {{claims: {{{item.mount}: NAME}}}}`",
            )  # fmt: skip


def _batch_storage(spec: CheckedSpec) -> Iterator[Problem]:
    lustre = [index for index, item in enumerate(spec.full.storage) if item.lustre is not None]
    for index in lustre[1:]:
        yield at(spec, "storage", index, what="nodes of a Batch plan mount one Lustre file system", fix="keep one")
    for index in lustre[:1]:
        item = spec.full.storage[index].lustre
        if item is not None and item.id is not None:
            yield at(
                spec, "storage", index, "lustre", what="nodes mount an existing file system by names only AWS knows",
                fix="let the plan create it, or mount it in an image of your own and leave it out",
            )  # fmt: skip


def _hyperpod_storage(spec: CheckedSpec) -> Iterator[Problem]:
    for index, item in enumerate(spec.full.storage):
        if item.efs is not None and item.efs.id is None:
            yield at(
                spec,
                "storage",
                index,
                "efs",
                what="a HyperPod plan makes no EFS file system",
                fix="name one: `id: fs-…`",
            )


def _named_group(spec: CheckedSpec) -> Iterator[Problem]:
    given = spec.full.network
    if given.private_subnet is not None and given.security_group is None:
        yield at(
            spec, "network", "private_subnet", what="the nodes need a security group, and the network names none",
            fix="add `security_group: sg-…`, one that allows all traffic to and from itself",
        )  # fmt: skip


def _region(spec: CheckedSpec) -> Iterator[Problem]:
    name = spec.full.region
    if name is not None and find_region(name) is None:
        try:
            region(name)
        except UserError as error:
            yield at(spec, "region", what=error.what, fix=error.fix)


def _existing(spec: CheckedSpec) -> Iterator[Problem]:
    given, full = spec.full.network, spec.full
    named = [k for k in ("vpc", "public_subnet", "private_subnet", "security_group") if getattr(given, k)]
    missing = [k for k in ("public_subnet", "private_subnet") if getattr(given, k) is None]
    if not named:
        return
    if missing:
        yield at(
            spec, "network", named[0], what=f"the network names {' and '.join(named)} but not {' and '.join(missing)}",
            fix="name both subnets, or leave `network` out and one is created",
        )  # fmt: skip
    if given.zones > 1 or given.more_zones:
        key = "zones" if given.zones > 1 else "more_zones"
        yield at(
            spec, "network", key, what=f"`{key}` belongs to a network that is created", fix="remove it, or the subnets"
        )
    lacking = [key for key in ("vpc", "security_group") if getattr(given, key) is None]
    for index, item in enumerate(full.storage):
        made = (item.lustre and not item.lustre.id and not item.lustre.managed) or (
            item.openzfs and not item.openzfs.id
        )
        if made and lacking:
            yield at(
                spec, "storage", index, what=f"a file system is created here, but the network names no {lacking[0]}",
                fix=f"add `network: {{{lacking[0]}: …}}`, or name an existing file system with `id:`",
            )  # fmt: skip
    if creates_database(spec) and (given.vpc is None or len(getattr(full.accounting, "subnets", ())) < TWO_ZONES):
        yield at(
            spec, "accounting", what="the database needs the existing network's VPC and private subnets in two zones",
            fix="add `network: {vpc: …}` and `accounting: {subnets: [subnet-…, subnet-…]}`",
        )  # fmt: skip


def creates_database(spec: CheckedSpec) -> bool:
    accounting = spec.full.accounting
    return accounting is not None and accounting.uri is None


def _two_zones(spec: CheckedSpec) -> str:
    """Why the network needs two zones, in brackets; empty where one will do."""
    if spec.full.platform in ("eks", "hyperpod-eks"):
        return " (the control plane of EKS stands in two)"
    return " (a database stands in two)" if creates_database(spec) else ""


def _zones(spec: CheckedSpec) -> Iterator[Problem]:
    given, zone = spec.full.network, spec.full.zone
    if any(getattr(given, key) for key in ("vpc", "public_subnet", "private_subnet", "security_group")):
        return
    reason = _two_zones(spec)
    count = max(given.zones, 1 + len(given.more_zones), TWO_ZONES if reason else 1)
    if zone is None:
        if given.more_zones:
            yield at(
                spec, "network", "more_zones", what="`more_zones` adds to `zone`, which is missing", fix="add `zone:`"
            )
        return
    zones = (zone, *given.more_zones)
    known = zones_of(spec.full.region or "") if zone_kind(zone) == "id" else ()
    if len({*zones, *known}) < count or given.zones > len(zones):
        yield at(
            spec, "zone", what=f"the network needs {count} zones and the spec names {len(zones)}{reason}",
            fix="add `network: {more_zones: […]}`, or remove `zone` and let AWS choose",
        )  # fmt: skip
    styles = {zone_kind(each) for each in zones}
    if len(styles) != 1 or None in styles:
        yield at(spec, "zone", what="zones are written in two ways, or not as zones", fix="write all as ids: use2-az3")
