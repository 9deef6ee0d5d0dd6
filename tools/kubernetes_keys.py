"""Print the keys of Kubernetes' own objects as the table that `check` reads, those of all versions together, from the
schemas of the package kubernetes-validate:
`python tools/kubernetes_keys.py > src/trainwright/check/data/kubernetes_keys.csv`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate

API = "io.k8s.api."
ROOTS = {
    "v1": ("Pod", "PodTemplate", "Service", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap", "Secret"),
    "batch/v1": ("Job", "CronJob"),
    "apps/v1": ("Deployment", "StatefulSet", "DaemonSet"),
}  # fmt: skip
SCALARS = {"string": "text", "integer": "whole", "boolean": "flag", "number": "number"}
FREE = ("Quantity", "IntOrString", "FieldsV1")  # several types of values
_VERSION = re.compile(r"v(\d+)\.(\d+)\.\d+-local$")


def schemas() -> list[tuple[tuple[int, int], dict[str, Any]]]:
    """Version -> definitions, oldest first."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    folders = [(match, path) for path in folder.iterdir() if (match := _VERSION.match(path.name))]
    read = [((int(m[1]), int(m[2])), json.loads((path / "_definitions.json").read_text())) for m, path in folders]
    return sorted(
        ((number, content.get("$defs") or content["definitions"]) for number, content in read), key=lambda pair: pair[0]
    )


def kind_of(schema: dict[str, Any]) -> tuple[str, str]:
    """How the table names the type of a value, and the type inside that is a row of its own, or none."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return ("free", "") if name.rsplit(".", 1)[1] in (*FREE, "Time", "MicroTime") else ("map", name)
    types = schema.get("type", "free")
    kind = next((t for t in types if t != "null"), "free") if isinstance(types, list) else types
    if kind == "array":
        inner, name = kind_of(schema["items"])
        return f"{inner}s", name
    if kind == "object":
        inner = schema.get("additionalProperties")
        return (f"{kind_of(inner)[0]} by name", "") if isinstance(inner, dict) else ("free", "")
    return ("free", "") if schema.get("format") == "int-or-string" else (SCALARS.get(kind, "free"), "")


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Type, key, kind of the value and the type of the value, each once over all versions."""
    table: dict[tuple[str, str], tuple[str, str]] = {}
    for _, definitions in schemas():
        waiting = [f"{API}{group(api)}.{kind}" for api, kinds in ROOTS.items() for kind in kinds]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in definitions or name.endswith("Status"):
                continue
            seen.add(name)
            for key, schema in definitions[name].get("properties", {}).items():
                kind, inner = kind_of(schema)
                if inner and not definitions.get(inner, {}).get("properties"):
                    kind, inner = kind.replace("map", "free"), ""
                table[short(name), key] = (kind, short(inner))
                waiting += [inner] if inner else []
    yield from ((*where, *what) for where, what in sorted(table.items()))


def group(api: str) -> str:
    return ".".join(api.split("/")) if "/" in api else f"core.{api}"


def short(name: str) -> str:
    """Container, PodSpec; names are different over the groups that the table holds."""
    return name.rsplit(".", 1)[-1]


def main() -> None:
    numbers = [".".join(map(str, number)) for number, _ in schemas()]
    source = f"kubernetes-validate {version('kubernetes-validate')}"
    print(f"# source: schemas of Kubernetes {numbers[0]} to {numbers[-1]}, {source}")
    print(f"# date: {date.today()}")
    print("type,key,kind,inner")
    for row in rows():
        print(",".join(row))


if __name__ == "__main__":
    sys.exit(main())
