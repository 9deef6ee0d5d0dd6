"""From EC2's DescribeInstanceTopology to a host file ordered by distance and to Slurm's topology.conf."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import UserError


@dataclass(frozen=True, slots=True)
class Place:
    """One instance and the network nodes above it, from the top of the tree down to the one it hangs on."""

    host: str
    switches: tuple[str, ...]


def read_places(path: Path, names: Mapping[str, str]) -> list[Place]:
    """The instances of `aws ec2 describe-instance-topology`, neighbours side by side."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = answer["Instances"] if isinstance(answer, dict) else answer
        instances = [(_word(row["InstanceId"]), tuple(map(_word, _listed(row["NetworkNodes"])))) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "not an answer of DescribeInstanceTopology", where=str(path),
            fix="aws ec2 describe-instance-topology --output json > FILE",
        ) from error  # fmt: skip
    if not instances:
        raise UserError("no instance in the answer", where=str(path), fix="ask in the region of the instances")
    missing = [instance for instance, _ in instances if names and instance not in names]
    if missing:
        raise UserError(f"no host name for {', '.join(missing[:3])}", fix="add them to the file of --names")
    return sorted((Place(names.get(i, i), switches) for i, switches in instances), key=lambda p: (p.switches, p.host))


def _listed(words: Any) -> list[Any]:
    if not isinstance(words, list) or not words:
        raise TypeError("no network nodes")
    return words


def _word(word: Any) -> str:
    """An id that may stand in a line of topology.conf: a blank or a line break in it would be another setting."""
    if not isinstance(word, str) or not re.fullmatch(r"[\w.-]+", word):
        raise ValueError("not an id")
    return word


def read_names(path: Path | None) -> dict[str, str]:
    """Lines of `instance-id host-name`."""
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise UserError("not a text file", where=str(path), fix="lines of instance id and host name") from error
    pairs = (line.split() for line in lines if line.strip())
    return {pair[0]: pair[1] for pair in pairs if len(pair) > 1}


def host_file(places: Sequence[Place], slots: int) -> str:
    """For mpirun: hosts that share a switch follow one another, so that rings cross few switches."""
    return "".join(f"{place.host} slots={slots}\n" if slots else f"{place.host}\n" for place in places)


def topology_conf(places: Sequence[Place]) -> str:
    """Slurm's topology/tree. Several trees get a root above them, or Slurm would never join their nodes in one job."""
    leaves: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    for place in places:
        leaves.setdefault(place.switches[-1], []).append(place.host)
        for above, below in zip(place.switches, place.switches[1:], strict=False):
            if below not in children.setdefault(above, []):
                children[above].append(below)
    tops = list(dict.fromkeys(place.switches[0] for place in places))
    lines = [f"SwitchName={switch} Nodes={','.join(hosts)}" for switch, hosts in leaves.items()]
    lines += [f"SwitchName={switch} Switches={','.join(below)}" for switch, below in reversed(list(children.items()))]
    if len(tops) > 1:
        lines.append(f"SwitchName=root Switches={','.join(tops)}")
    return "\n".join(lines) + "\n"


def describe(places: Sequence[Place]) -> str:
    """How far the hosts are spread: few hosts per lowest switch mean more traffic over the upper ones."""
    leaves = {place.switches[-1] for place in places}
    tops = {place.switches[0] for place in places}
    return f"{len(places)} hosts under {len(leaves)} lowest network nodes and {len(tops)} highest"
