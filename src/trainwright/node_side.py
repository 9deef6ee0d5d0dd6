"""The part of Trainwright that runs on nodes, as files: what a run folder carries, and what a plan ships."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
NODE_SIDE = ("train", "bench", "exporters", "health")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment a zip file knows


def node_files() -> dict[str, bytes]:
    """Every file of the node side by its path below the package, in order."""
    paths = [*HERE.glob("*.py"), *(path for part in NODE_SIDE for path in (HERE / part).rglob("*"))]
    kept = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sorted(kept)}


def node_archive() -> bytes:
    """The node side as a zip file. The same files give the same bytes on every machine, which compression would not: a
    checksum names the content."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in node_files().items():
            archive.writestr(zipfile.ZipInfo(f"trainwright/{name}", _LONG_AGO), content)
    return packed.getvalue()
