"""What an image pins, as a CycloneDX bill of materials: scanners read it, and two images are compared by it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainwright import __version__

_SPACE = uuid.UUID("5b0f6a3e-7a1e-5c0a-9f63-6d1f5f2f7c10")  # the same content has the same serial number


@dataclass(frozen=True, slots=True)
class Component:
    """One thing of a fixed version, by its package URL."""

    kind: str
    name: str
    version: str
    purl: str

    @classmethod
    def pypi(cls, name: str, version: str) -> Component:
        plain = re.sub(r"[-_.]+", "-", name).lower()
        return cls("library", name, version, f"pkg:pypi/{plain}@{quote(version, safe='')}")

    @classmethod
    def image(cls, reference: str) -> Component:
        """A container image by its full reference, `registry/name:tag` or `registry/name:tag@sha256:…`."""
        tagged, _, digest = reference.partition("@")
        path, _, tag = tagged.rpartition(":")
        registry, _, name = path.partition("/")
        version = quote(digest or tag, safe="")
        more = f"&tag={tag}" if digest else ""
        return cls("container", path, digest or tag, f"pkg:docker/{name}@{version}?repository_url={registry}{more}")

    @classmethod
    def repository(cls, address: str, commit: str) -> Component:
        owner, _, name = address.removeprefix("https://github.com/").partition("/")
        return cls("application", name, commit, f"pkg:github/{owner.lower()}/{name.lower()}@{quote(commit, safe='')}")

    @classmethod
    def download(cls, name: str, version: str, address: str) -> Component:
        return cls("application", name, version, f"pkg:generic/{name}@{version}?download_url={quote(address, safe='')}")

    @classmethod
    def generic(cls, name: str, version: str) -> Component:
        return cls("library", name, version, f"pkg:generic/{quote(name.lower(), safe='')}@{version}")


def bill_of_materials(name: str, components: Sequence[Component]) -> dict[str, Any]:
    """CycloneDX 1.6. It carries no time: the same pins give the same file."""
    listed = sorted(set(components), key=lambda one: one.purl)
    serial = uuid.uuid5(_SPACE, "\n".join([name, *(one.purl for one in listed)]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "trainwright", "version": __version__}]},
            "component": {"type": "container", "bom-ref": "image", "name": name},
        },
        "components": [
            {"type": one.kind, "bom-ref": one.purl, "name": one.name, "version": one.version, "purl": one.purl}
            for one in listed
        ],
        "dependencies": [{"ref": "image", "dependsOn": [one.purl for one in listed]}],
    }
