"""What every part of the spec has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of every part of the spec: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def or_defaults(value: Any) -> Any:
    """`true` for all defaults, `false` for nothing."""
    return {True: {}, False: None}.get(value, value) if isinstance(value, bool) else value
