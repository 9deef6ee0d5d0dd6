"""The schemas of custom resource definitions, as strict as server-side apply is."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "judges/schemas"


def strict(schema: Any) -> Any:
    """The schema with unknown keys refused wherever it lists the known ones, as server-side apply does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def crd_schema(kind: str) -> Any:
    """Of a kind as its file is called, GROUP_VERSION_KIND; the metadata of every object are Kubernetes' own."""
    schema = strict(json.loads((SCHEMAS / f"{kind}.json").read_text()))
    schema["properties"]["metadata"] = {"type": "object"}
    return schema
