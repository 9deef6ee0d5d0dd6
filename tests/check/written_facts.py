"""AWS's answers, written down beside an example: `facts.toml` in its folder serves the examples named `*.aws.*`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from trainwright.check.facts import FileSystem, Group, GroupRule, Image, KeyPair, Reservation, Subnet


class WrittenFacts:
    """An implementation of the protocol `AwsFacts` over a TOML file."""

    def __init__(self, path: Path) -> None:
        self.answers = tomllib.loads(path.read_text())

    @property
    def region(self) -> str:
        return str(self.answers["region"])

    def _row(self, kind: str, id: str) -> dict[str, Any] | None:
        return self.answers.get(kind, {}).get(id)

    def reservation(self, id: str) -> Reservation | None:
        row = self._row("reservation", id)
        return Reservation(id=id, **row) if row is not None else None

    def subnet(self, id: str) -> Subnet | None:
        row = self._row("subnet", id)
        return Subnet(id=id, **row) if row is not None else None

    def image(self, id: str) -> Image | None:
        row = self._row("image", id)
        return Image(id=id, **row) if row is not None else None

    def key_pair(self, name: str) -> KeyPair | None:
        row = self._row("key_pair", name)
        return KeyPair(name=name, **row) if row is not None else None

    def security_group(self, id: str) -> Group | None:
        row = self._row("security_group", id)
        return Group(id, _rules(row, "ingress"), _rules(row, "egress")) if row is not None else None

    def file_system(self, id: str) -> FileSystem | None:
        row = self._row("file_system", id)
        return FileSystem(id, row["kind"], tuple(row["groups"])) if row is not None else None


def _rules(row: dict[str, Any], key: str) -> tuple[GroupRule, ...]:
    return tuple(
        GroupRule(
            one["protocol"],
            one.get("from_port", 0),
            one.get("to_port", 65535),
            tuple(one.get("groups", ())),
            tuple(one.get("ranges", ())),
        )
        for one in row.get(key, ())
    )


class WrittenNode:
    """A node's answers over a TOML file: the paths it has, and nothing else."""

    def __init__(self, path: Path) -> None:
        self.answers = tomllib.loads(path.read_text())

    def path_exists(self, path: str) -> bool:
        return path in self.answers["paths"]

    def interfaces(self) -> list[str]:
        return []

    def version(self, software: str) -> str | None:
        return None
