"""Which zones a network gets where the spec leaves it open (`zone: auto`): those that offer every queue's instance
type, by what AWS answered or by the catalog; the first of the region, with a note, where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.catalog.instances import find_instance
from trainwright.catalog.offerings import offered_zones, offerings_date, zones_of
from trainwright.catalog.regions import zone_kind
from trainwright.spec.model import Spec

Offers = Mapping[str, tuple[str, ...]]  # instance type -> zone ids that offer it
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """Zones in order: nodes use the first ones. `notes`: what a user should know before it is built."""

    zones: tuple[str, ...]
    why: str
    notes: tuple[str, ...] = ()


def choose_zones(spec: Spec, count: int, asked: Offers | None = None) -> ZoneChoice:
    """The first `count` zones for the spec's queues. `asked` is what AWS answered; without it the catalog is read."""
    region = spec.region or ""
    names = sorted({queue.instance for queue in spec.queues if queue.instance})
    known = {name: zones for name in names if (zones := _offer(name, region, asked)) is not None}
    everywhere = sorted({*zones_of(region), *(zone for zones in known.values() for zone in zones)})
    when = "as AWS answered" if asked is not None else f"by the catalog of {offerings_date()}"
    if not known:
        return _unknown(spec, names, count)
    common = sorted(set.intersection(*(set(zones) for zones in known.values())))
    notes = _reserved(spec)
    if not common:
        offers = "; ".join(f"{name}: {', '.join(zones) or 'none'}" for name, zones in known.items())
        notes += (f"no zone of {region} offers all of the queues' instance types, {when} ({offers})",)
        common = list(next(iter(known.values())))
    chosen = tuple([*common, *(zone for zone in everywhere if zone not in common)][:count])
    if len(chosen) < count:
        return _unknown(spec, names, count)
    return ZoneChoice(chosen, f"{', '.join(known)} offered in {', '.join(common)}, {when}", notes)


def zone_doubts(spec: Spec, asked: Offers | None = None) -> tuple[str, ...]:
    """The queues whose type is not offered in the zone that the spec names by id."""
    if spec.zone is None or zone_kind(spec.zone) != "id":
        return ()
    when = "as AWS answered" if asked is not None else f"by the catalog of {offerings_date()}"
    names = [queue.instance for queue in spec.queues if queue.instance]
    offers = {name: _offer(name, spec.region or "", asked) for name in names}
    return tuple(
        f"{spec.zone} does not offer {name}, {when}; {', '.join(zones) or 'no zone of the region'} does"
        for name, zones in offers.items()
        if zones is not None and spec.zone not in zones
    )


def _reserved(spec: Spec) -> tuple[str, ...]:
    """A reservation is in one zone, which only AWS knows."""
    reserved = [queue.capacity for queue in spec.queues if queue.capacity.kind in ("reservation", "block", "group")]
    ids = [id for capacity in reserved for id in capacity.reservations or (str(capacity.id),)]
    return (f"the nodes must be in the zone of {', '.join(ids)}: name it with `zone:`",) if ids else ()


def _offer(name: str, region: str, asked: Offers | None) -> tuple[str, ...] | None:
    return asked.get(name) if asked is not None else offered_zones(name, region)


def _unknown(spec: Spec, names: list[str], count: int) -> ZoneChoice:
    region = spec.region or ""
    note = (
        f"which zones of {region} offer {', '.join(names)} is not known: the first zone is taken, and nodes fail to "
        "start if it does not offer them; `trainwright plan --aws` asks AWS, `zone:` names one"
    )
    # Plain types are offered nearly everywhere; the table holds the others.
    machines = [find_instance(name) for name in names]
    scarce = any(machine is None or machine.accelerator_count for machine in machines)
    return ZoneChoice((AUTO,) * count, "the first of the region", (*_reserved(spec), *((note,) if scarce else ())))
