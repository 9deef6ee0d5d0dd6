"""Files of recorded nodes below a folder, as the exporters' `--root` takes them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "health"))
from trees import healthy

COUNTERS = Path(__file__).parents[2] / "src/trainwright/exporters/data/efa_counters.csv"
DEVICES = "sys/class/infiniband"


def known_counters() -> list[dict[str, str]]:
    with COUNTERS.open() as handle:
        return list(csv.DictReader(line for line in handle if not line.startswith("#")))


def counters_of(instance: str) -> list[dict[str, str]]:
    """p4d's card has no RDMA write, and its image an older driver; kernel verbs are in no stock build."""
    rows = [row for row in known_counters() if "kernel-verbs" not in row["meaning"]]
    if instance.startswith("p4d"):
        rows = [row for row in rows if "2.17.0" not in row["meaning"] and "write" not in row["counter"]]
    return rows


def write_node(instance: str, folder: Path) -> Path:
    """Writes the files of a node of a type and gives the folder."""
    tree = healthy(instance)
    cards = sorted({path.split("/")[4] for path in tree.files if path.startswith(f"/{DEVICES}/")})
    for card, device in enumerate(cards):
        for number, row in enumerate(counters_of(instance)):
            place = "hw_counters" if row["level"] == "device" else "ports/1/hw_counters"
            tree.files[f"/{DEVICES}/{device}/{place}/{row['counter']}"] = f"{1000 * (number + 1) + card}\n"
        tree.files[f"/{DEVICES}/{device}/ports/1/rate"] = "100 Gb/sec (4X EDR)\n"
        tree.files[f"/{DEVICES}/{device}/ports/1/hw_counters/lifespan"] = "12\n"
        if instance.startswith("p4d"):
            for row in known_counters():
                if row not in counters_of(instance):
                    tree.files.pop(f"/{DEVICES}/{device}/ports/1/hw_counters/{row['counter']}", None)
    root = folder / instance
    for path, text in tree.files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root
