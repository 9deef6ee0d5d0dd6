"""Runs inside ParallelCluster's own virtual environment: prints the update policy of every field of its schema as CSV,
which is how data/updates.csv of the ParallelCluster platform is made and how a test sees that it is still true."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Any


def walk(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    from marshmallow import fields

    for name, field in schema.fields.items():
        key = f"{path}{field.data_key or ''.join(part.capitalize() for part in name.split('_'))}"
        policy = field.metadata.get("update_policy")
        many = isinstance(field, fields.Nested) and field.many
        key += "[]" if many else ""
        yield key, policy.name if policy is not None else "UNKNOWN"
        if isinstance(field, fields.Nested):
            yield from walk(field.schema, f"{key}.")


def main() -> None:
    from pcluster.schemas.cluster_schema import ClusterSchema

    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["path", "policy"])
    for row in walk(ClusterSchema(cluster_name="x"), ""):
        if not row[0].startswith(("DevSettings", "LoginNodes", "DeploymentSettings")):
            out.writerow(row)


if __name__ == "__main__":
    main()
