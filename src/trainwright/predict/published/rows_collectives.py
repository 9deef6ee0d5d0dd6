"""Reads rows of a table of collectives (the columns of published_collectives.csv) and predicts each bus bandwidth."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.catalog.instances import find_instance
from trainwright.predict.collectives import Group, all_gather, all_reduce, all_to_all, group, reduce_scatter
from trainwright.predict.hardware import GB, Cluster, cluster_of, device, fabric, inner_link
from trainwright.predict.published.rowshape import chip_of, whole

Row = dict[str, str]
TORCH_LAUNCH = 30e-6  # measured from torch instead of nccl-tests: includes the host's launch
NETWORKS = ("dgx", "infiniband", "hdr", "ndr", "roce", "ref arch")  # words that tell how several nodes are linked
LARGE = 8 * 2**30  # the message size assumed where a row states none


def is_collectives(columns: list[str]) -> bool:
    return "op" in columns and "bytes" in columns


def cluster_named(text: str, nodes: int, gpus: int) -> Cluster | None:
    """A cluster of the EC2 type named, else of nodes with that accelerator and its reference network."""
    word = text.split()[0].lower() if text.strip() else ""
    kind = find_instance(word)
    if kind is not None and kind.accelerator:
        return cluster_of(kind, nodes)
    chip = chip_of(text)
    if chip is None or (nodes > 1 and not any(word in text.lower() for word in NETWORKS)):
        return None
    per_node = max(1, gpus // max(1, nodes))
    chip = replace(chip, domain=8)
    return Cluster(chip, gpus, per_node, inner_link(device(chip.name), 8), fabric("infiniband", 50.0))


def ring_only(g: Group) -> Group:
    return replace(g, inside=replace(g.inside, reduce_efficiency=g.inside.ring_efficiency))


def answer_collective(row: Row) -> dict[str, object]:
    """`busbw_gb_s`, or the reason why there is none."""
    op = row.get("op", "").strip().lower().replace("-", "_")
    nodes, gpus = whole(row.get("nodes"), 1) or 1, whole(row.get("gpus"))
    machines = cluster_named(row.get("gpu/instance", ""), nodes, gpus)
    if machines is None:
        return refused(row, "the hardware is not known, or nothing says how its nodes are linked")
    if gpus < 2:
        gpus = machines.per_node * nodes
    if op in ("p2p memcpy", "rdma write", "send", "sendrecv", "p2p"):
        return answered(row, point(row, machines, op))
    if op not in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "all_to_all", "broadcast"):
        return refused(row, f"{row.get('op', '')!r} is not a collective the model knows")
    g = replace(group(machines, gpus, 1), per_domain=max(1, gpus // nodes))
    if re.search(r"nvls off|nvls_enable=0|algo=ring", row.get("notes", "").lower()):
        g = ring_only(g)
    size = float(whole(row.get("bytes")) or LARGE)
    times = {
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "broadcast": all_gather,
    }
    seconds = times.get(op, all_to_all)(size, g) + (TORCH_LAUNCH if "torch" in row.get("notes", "").lower() else 0.0)
    passes = (gpus - 1) / gpus * (2 if op == "all_reduce" else 1)
    return answered(row, size / seconds * passes / GB)


def point(row: Row, machines: Cluster, op: str) -> float:
    """GB/s of one rank to another; an RDMA write uses all adapters of a node, or one."""
    if op == "rdma write":
        adapters = 16 if "one efa adapter" in row["gpu/instance"].lower() else 1
        return 0.97 * machines.between.rate / GB * machines.per_node / adapters
    link = machines.between if whole(row.get("nodes"), 1) > 1 else machines.inside
    return link.rate * link.point_efficiency / GB


def answered(row: Row, rate: float) -> dict[str, object]:
    return {"id": row.get("id", ""), "covered": True, "reason": "", "busbw_gb_s": rate}


def refused(row: Row, reason: str) -> dict[str, object]:
    return {"id": row.get("id", ""), "covered": False, "reason": reason, "busbw_gb_s": None}
