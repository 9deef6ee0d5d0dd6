"""Where the lines come from: a log file, a folder of logs, an archive of `pcluster export-cluster-logs`, or a stack in
AWS. All reads are bounded: the end of a log says why it ended."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from trainwright.errors import UserError

TAIL = 8 * 2**20  # bytes of a file that are read, from its end
FILES = 500
# Endings and names of logs, as nodes, CloudWatch and pcluster write them.
LOGS = (
    "log",
    "events",
    "out",
    "err",
    "json",
    "txt",
    "cfn-init",
    "cloud-init",
    "clustermgtd",
    "slurm",
    "chef",
    "system",
)


def texts_of(path: Path) -> dict[str, str]:
    """Name -> text of the logs that a path means."""
    try:
        if path.is_dir():
            return _folder(path)
        if not path.is_file():  # reading a pipe would wait for a writer
            raise UserError("this is not a regular file", where=str(path), fix="name a log file or a folder")
        if tarfile.is_tarfile(path):
            return dict(_archive(path))
        return {path.name: _decoded(path.name, _tail(path))}
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"cannot read the log: {error}", where=str(path)) from error


def _folder(folder: Path) -> dict[str, str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_log(path.name)][:FILES]
    if not paths:
        raise UserError("there is no log in this folder", where=str(folder), fix="name a log file, or a stack")
    texts: dict[str, str] = {}
    for path in paths:
        texts |= (
            dict(_archive(path))
            if tarfile.is_tarfile(path)
            else {str(path.relative_to(folder)): _decoded(path.name, _tail(path))}
        )
    return texts


def _archive(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for count, member in enumerate(archive):
            content = archive.extractfile(member) if member.isfile() and _is_log(member.name) else None
            if content is not None:
                content.seek(max(0, member.size - TAIL))
                yield member.name, _decoded(member.name, content.read(TAIL))
            if count > FILES:
                return


def _is_log(name: str) -> bool:
    last = name.rpartition("/")[2].lower()
    return any(word in last for word in LOGS) or last.endswith((".gz", ".tgz"))


def _tail(path: Path) -> bytes:
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - TAIL))
        return handle.read(TAIL)


def _decoded(name: str, content: bytes) -> str:
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)[-TAIL:]
    return content.decode(errors="replace")
