"""The JSON schema of the spec, with descriptions, for editors and other tools."""

from __future__ import annotations

import json
from typing import Any

from trainwright.spec.job import Parallel
from trainwright.spec.model import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema as data. `extends` is resolved before validation, so it is added here."""
    described = Spec.model_json_schema(by_alias=False)
    described["$schema"] = DIALECT
    described["title"] = "Trainwright spec"
    described["properties"]["extends"] = {
        "type": "string",
        "description": "A base file beside this one; what is written here goes over it.",
    }
    shapes = described["$defs"]["Parallel"]["properties"]
    shapes |= {field.alias: shapes[name] for name, field in Parallel.model_fields.items() if field.alias}
    # A file that extends another may leave out what the base says.
    described.pop("required", None)
    described["anyOf"] = [{"required": ["extends"]}, {"required": ["name", "platform", "queues"]}]
    return described


def schema_text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False)
