"""Texts that a reader of YAML may take for a number. PyYAML follows YAML 1.1 and writes `1e-5` without quotes, and
readers of YAML 1.2, kubectl among them, read a number there."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?|[-+]?0[xob][\da-fA-F]+")


def looks_like_number(text: str) -> bool:
    """Whether the text must be quoted to stay one."""
    return _NUMBER.fullmatch(text) is not None
