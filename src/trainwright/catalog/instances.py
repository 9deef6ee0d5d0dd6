"""EC2 instance types: what one node has. The rows are in data/instances.csv (made from DescribeInstanceTypes), what the
API gets wrong in data/corrections.csv, the processors in data/processors.csv. A row is parsed when it is asked for, so
that a check of one file does not pay for a thousand types."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.catalog.accelerators import find_accelerator
from trainwright.catalog.tables import Table, cached, overlay_table, shipped_table
from trainwright.errors import UserError, did_you_mean


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One node. `sockets` is 0 where the processor is not known to us; `efa_cards` is 0 where there is no EFA."""

    name: str
    family: str
    arch: str
    vcpus: int
    cores: int
    threads_per_core: int
    sockets: int
    cores_per_socket: int
    memory_mib: int
    accelerator: str | None  # a key of trainwright.catalog.accelerators
    accelerator_count: int
    accelerator_memory_mib: int
    accelerator_share: float  # 1.0, or the part of a chip that a g6f node gets
    network_gbps: float
    network_cards: int
    efa_cards: int
    max_enis: int
    peak_gbps_per_card: float
    nvme_gb: int
    nvme_disks: int
    capacity: tuple[str, ...]
    placement: tuple[str, ...]
    hypervisor: str
    bare_metal: bool
    source: str

    @property
    def is_gpu(self) -> bool:
        chip = find_accelerator(self.accelerator) if self.accelerator else None
        return self.accelerator_count > 0 and (chip is None or not chip.is_neuron)

    @property
    def is_neuron(self) -> bool:
        return self.accelerator_count > 0 and not self.is_gpu

    @property
    def gpus(self) -> int:
        """GPUs a job can ask for on one node; Neuron chips are not GPUs."""
        return self.accelerator_count if self.is_gpu else 0

    @property
    def nvlinks(self) -> int:
        """NVLinks of one GPU; a node with a single GPU has nothing to link it to."""
        chip = find_accelerator(self.accelerator) if self.accelerator else None
        return chip.nvlinks if chip is not None and self.gpus > 1 else 0


@cached
def instances() -> tuple[InstanceType, ...]:
    """Every type of the catalog, in the order of its name."""
    return tuple(_parse(name) for name in sorted(_rows()))


def instance_names() -> tuple[str, ...]:
    """The names of every type, without parsing their rows."""
    return tuple(sorted(_rows()))


def find_instance(name: str) -> InstanceType | None:
    """By name; SageMaker's spelling (`ml.p5.48xlarge`) means the same machine."""
    plain = name.strip().lower().removeprefix("ml.")
    return _parse(plain) if plain in _rows() else None


def instance(name: str) -> InstanceType:
    type_ = find_instance(name)
    if type_ is None:
        plain = name.lower().removeprefix("ml.")
        sizes = ", ".join(row for row in _rows() if row.startswith(f"{plain}."))
        raise UserError(
            f"no instance type {name!r} in the catalog",
            fix=(f"{plain} is a family: {sizes}" if sizes else did_you_mean(plain, _rows()))
            or "`trainwright catalog list` names them; `trainwright catalog update` fetches new ones from EC2",
        )
    return type_


@cached
def _rows() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """name -> (columns, row); a row the user fetched comes before the shipped one."""
    rows: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    tables: tuple[Table | None, ...] = (shipped_table("instances.csv"), overlay_table("instances.csv"))
    for table in tables:
        if table is not None:
            rows.update((row[0], (table.columns, row)) for row in table.rows)
    return rows


@cached
def _corrections() -> dict[str, dict[str, str]]:
    corrections: dict[str, dict[str, str]] = {}
    for row in shipped_table("corrections.csv").records():
        corrections.setdefault(row["name"], {})[row["field"]] = row["value"]
    return corrections


@cached
def _cores_per_socket() -> dict[str, int]:
    return {row["family"]: int(row["cores_per_socket"]) for row in shipped_table("processors.csv").records()}


@cached
def _parse(name: str) -> InstanceType:
    columns, row = _rows()[name]
    values = dict(zip(columns, row, strict=True)) | _corrections().get(name, {})
    family = name.split(".")[0]
    cores = int(values["cores"])
    sockets = int(values.get("sockets", 0)) or _sockets(family, cores)
    return InstanceType(
        name=name,
        family=family,
        arch=values["arch"],
        vcpus=int(values["vcpus"]),
        cores=cores,
        threads_per_core=int(values["threads_per_core"]),
        sockets=sockets,
        cores_per_socket=cores // sockets if sockets else 0,
        memory_mib=int(values["memory_mib"]),
        accelerator=values["accelerator"] or None,
        accelerator_count=int(values["accelerator_count"]),
        accelerator_memory_mib=int(values["accelerator_memory_mib"]),
        accelerator_share=float(values["accelerator_share"] or 1.0),
        network_gbps=float(values["network_gbps"]),
        network_cards=int(values["network_cards"]),
        efa_cards=int(values["efa_cards"]),
        max_enis=int(values["max_enis"]),
        peak_gbps_per_card=float(values["peak_gbps_per_card"]),
        nvme_gb=int(values["nvme_gb"]),
        nvme_disks=int(values["nvme_disks"]),
        capacity=tuple(values["capacity"].split("|")),
        placement=tuple(values["placement"].split("|")),
        hypervisor=values["hypervisor"],
        bare_metal=values["bare_metal"] == "yes",
        source=values["source"],
    )


def _sockets(family: str, cores: int) -> int:
    per_socket = _cores_per_socket().get(family, 0)
    return -(-cores // per_socket) if per_socket else 0
