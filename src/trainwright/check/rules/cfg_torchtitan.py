"""CFG: misspelt keys of torchtitan's TOML files. Its configuration changed between releases, and forks add to it: only
a key that no release has and that is one letter from one of the same section is certain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table
from trainwright.check import reasons
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_TABLE = Path(__file__).parents[1] / "data" / "torchtitan_keys.csv"
# Modules of the user's own, whose classes add sections and keys.
_OWN_CLASSES = (("job", "custom_config_module"), ("experimental", "custom_args_module"))
_SHORTEST = 4  # of shorter names another letter makes another name


@cache
def sections() -> Mapping[str, frozenset[str]]:
    """Section -> the keys that some release has; the sections themselves are those of an empty name."""
    return {row["section"]: frozenset(row["keys"].split()) for row in read_table(_TABLE).records()}


def misspelt_keys(root: Node, section: str = "") -> Iterator[Problem]:
    """Keys that torchtitan does not have, one letter from one that it has."""
    if not section and any(root.get(*path) is not None for path in _OWN_CLASSES):
        return
    known = sections().get(section)
    for name, child in root.items() if known is not None else ():
        if known is not None and name not in known:
            meant = next((one for one in sorted(known) if _is_slip(name, one)), "")
            if meant and root.get(meant) is None:
                where = f"[{section}]" if section else "the file"
                yield problem(
                    root.key_span(name),
                    f"torchtitan has no {name} in {where}",
                    f"did you mean {meant}?",
                    why=reasons.REFUSED_BY_TORCHTITAN,
                )
        elif child.is_map:
            yield from misspelt_keys(child, f"{section}.{name}".lstrip("."))


def _is_slip(written: str, meant: str) -> bool:
    """Whether two names differ by one letter, by two that changed places, or by hyphens."""
    if min(len(written), len(meant)) < _SHORTEST or {written, meant} == {"enable", "enabled"}:
        return False
    if written.replace("-", "_") == meant:
        return True
    first = next((n for n, (a, b) in enumerate(zip(written, meant, strict=False)) if a != b), None)
    if first is None:
        return abs(len(written) - len(meant)) == 1
    one, other = written[first:], meant[first:]
    return (
        one[1:] == other[1:]
        or one[1:] == other
        or one == other[1:]
        or (one[:2] == other[1::-1] and one[2:] == other[2:])
    )
