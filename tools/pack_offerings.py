"""Write catalog/data/offerings.csv: in which zones each accelerated instance type is offered, from the answers of
DescribeInstanceTypeOfferings that moto bundles. Run it after an update of moto."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import moto

from trainwright.catalog.instances import find_instance

ROOT = Path(__file__).parents[1]
SOURCE = Path(moto.__file__).parent / "ec2/resources/instance_type_offerings/availability-zone-id"
HEADER = """\
# source: EC2 DescribeInstanceTypeOfferings by availability-zone-id, as bundled with moto {version}; accelerated types
# note: offered is not available: a type may still have no free capacity; a region that is not here is not known
# date: 2026-08-22
# units: zones are numbers of zone ids: 1 3 in us-east-2 is use2-az1 and use2-az3
instance,region,zones
"""


def main() -> None:
    rows: dict[tuple[str, str], set[int]] = defaultdict(set)
    for path in sorted(SOURCE.glob("*.json.gz")):
        for offer in json.loads(gzip.decompress(path.read_bytes())):
            machine = find_instance(offer["InstanceType"])
            zone = offer["Location"].rpartition("-az")[2]
            if machine is not None and machine.accelerator_count and zone.isdigit() and "-" not in zone:
                rows[machine.name, path.name.removesuffix(".json.gz")].add(int(zone))
    lines = [f"{name},{region},{' '.join(map(str, sorted(zones)))}" for (name, region), zones in sorted(rows.items())]
    target = ROOT / "src/trainwright/catalog/data/offerings.csv"
    target.write_text(HEADER.format(version=moto.__version__) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
