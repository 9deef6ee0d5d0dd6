"""Prints the table of keys that ParallelCluster knows (src/trainwright/check/data/parallelcluster_keys.csv), from its
own schema. The judge's environment runs it: .venvs/pcluster/bin/python -P tools/parallelcluster_keys.py"""

from __future__ import annotations

import csv
import re
import sys
from importlib.metadata import version
from typing import Any

from marshmallow import fields, validate  # type: ignore[import-not-found]
from pcluster.schemas.cluster_schema import ClusterSchema  # type: ignore[import-not-found]

COLUMNS = ("parent", "key", "kind", "required", "allowed", "least", "id")
# The accounting database's keys have a rule of their own, as has a queue's largest count.
OWN_RULE = ("Scheduling.SlurmSettings.Database", "MaxCount")
Row = tuple[str, str, str, str, str, str, str]


def limits(*parts: Any) -> tuple[str, str, str]:
    """The choices, the least number and the id prefix that a field's validators state."""
    allowed = least = prefix = ""
    for check in (check for part in parts for check in part.validators):
        if isinstance(check, validate.OneOf):
            allowed = "|".join(map(str, check.choices))
        elif isinstance(check, validate.Range) and check.min is not None:
            least = str(check.min)
        elif isinstance(check, validate.Regexp):
            match = re.match(r"^\^\(?([a-z]+)-\[0-9", check.regex.pattern)
            prefix = match[1] if match else prefix
    return allowed, least, prefix


def kind_of(field: Any, inner: Any) -> str:
    if isinstance(inner, fields.Nested):
        return "maps" if inner.many or inner is not field else "map"
    if isinstance(inner, fields.Dict) or type(inner) in (fields.Raw, fields.Field):
        return "free"
    return "list" if inner is not field else "value"


def rows(schema: Any, path: str, action: bool = False) -> list[Row]:
    table: list[Row] = []
    for name, field in schema.declared_fields.items():
        key = field.data_key or name
        inner = field.inner if isinstance(field, fields.List) else field
        allowed, least, prefix = limits(*{id(field): field, id(inner): inner}.values())
        required = "yes" if field.required and not action and path != OWN_RULE[0] else ""
        least = "" if key == OWN_RULE[1] else least
        below = f"{path}.{key}" if path else key
        table.append((path, key, kind_of(field, inner), required, allowed, least, prefix))
        if isinstance(inner, fields.Nested):
            steps = type(inner).__name__ == "OneOrManyCustomActionField"
            table += rows(inner.schema, below, steps)
            if steps:
                table.append((below, "Sequence", "maps", "", "", "", ""))
                table += [
                    (f"{below}.Sequence", k, kind, "", "", "", "")
                    for k, kind in (("Script", "value"), ("Args", "list"))
                ]
    return table


if __name__ == "__main__":
    made_with = version("aws-parallelcluster")
    print(f"# source: aws-parallelcluster {made_with}, the fields of its cluster schema (names, choices and limits)")
    print(f"# version: {made_with}")
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    out.writerows(sorted(rows(ClusterSchema(cluster_name="any"), "")))
