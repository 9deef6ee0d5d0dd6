"""Input files that may be compressed with gzip or zstd, decompressed as they are read."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.errors import UserError

PACKED = (".gz", ".zst")


def open_input(path: Path) -> BinaryIO:
    """A file opened for reading, decompressed where needed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise UserError(
                "reading .zst needs the `zstandard` package", where=str(path), fix="pip install zstandard"
            ) from error
        return io.BufferedReader(Unzstd(path, zstandard))
    return path.open("rb")


class Unzstd(io.RawIOBase):
    """A .zst file decompressed as it is read. The package's own reader does not detect a truncated file."""

    def __init__(self, path: Path, package: Any) -> None:
        self.handle, self.package = path.open("rb"), package
        self.frame: Any = None
        self.ready = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.handle.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            packed = self.handle.read(1 << 17)
            if not packed:
                if self.frame is not None:
                    raise EOFError("truncated within a frame")
                return 0
            self.ready = self._unpack(packed)
        part, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def _unpack(self, packed: bytes) -> bytes:
        """Decompress the next bytes; they may end one frame and start another."""
        parts = []
        try:
            while packed:
                self.frame = self.frame or self.package.ZstdDecompressor().decompressobj()
                parts.append(self.frame.decompress(packed))
                packed = self.frame.unused_data if self.frame.eof else b""
                self.frame = None if self.frame.eof else self.frame
        except self.package.ZstdError as error:
            raise OSError(str(error)) from error
        return b"".join(parts)
