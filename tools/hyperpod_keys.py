"""Print the keys of SageMaker's CreateCluster request as the table that `check` reads, from botocore's service model:
`python tools/hyperpod_keys.py > src/trainwright/check/data/hyperpod_keys.csv`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import date
from typing import Any

import botocore
import botocore.session
from botocore.model import ListShape, Shape, StructureShape

COLUMNS = ("parent", "key", "kind", "required", "least", "most", "pattern", "allowed")
TYPES = "ClusterInstanceType"  # its values are one row of their own, once


def rows() -> Iterator[dict[str, str]]:
    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("CreateCluster").input_shape
    assert isinstance(shape, StructureShape)
    yield from _members(shape, "")
    yield {"parent": TYPES, "key": TYPES, "kind": "text", "allowed": "|".join(model.shape_for(TYPES).enum)}


def _members(shape: StructureShape, path: str) -> Iterator[dict[str, str]]:
    for name, member in shape.members.items():
        element = member.member if isinstance(member, ListShape) else member
        required = "yes" if name in shape.required_members else ""
        yield {"parent": path, "key": name, "required": required, **_bounds(member, element)}
        if isinstance(element, StructureShape):
            yield from _members(element, f"{path}.{name}" if path else name)


def _bounds(member: Shape, element: Shape) -> dict[str, str]:
    """The kind of a key and what its values may be; of a list, how many and what each."""
    kinds = {"structure": "map", "map": "free", "integer": "number", "long": "number", "boolean": "flag"}
    kind = kinds.get(element.type_name, "text")
    limits: dict[str, Any] = member.metadata
    pattern = element.metadata.get("pattern", "")
    allowed = TYPES if element.name == TYPES else "|".join(getattr(element, "enum", ()))
    return {
        "kind": f"{kind}s" if isinstance(member, ListShape) else kind,
        "least": str(limits.get("min", "")),
        "most": str(limits.get("max", "")),
        "pattern": "" if allowed or "\\p{" in pattern else pattern,
        "allowed": allowed,
    }


def main() -> None:
    print(f"# source: botocore {botocore.__version__}, sagemaker, CreateCluster")
    print(f"# date: {date.today()}")
    writer = csv.DictWriter(sys.stdout, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows())


if __name__ == "__main__":
    main()
