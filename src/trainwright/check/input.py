"""Reads a file, a pipe or standard input as text, never without end: pipes and standard input are read up to a limit,
devices and named pipes without a writer are refused. Scripts may be of any encoding, as they may be for the shell."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

from trainwright.check.readers.recognise import is_textual
from trainwright.errors import UserError
from trainwright.files import MAX_BYTES, read_regular
from trainwright.spec.source import OWN_STREAMS, SourceError, bounded, read_text

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_DECLARED = re.compile(rb"\A(.*\n)?[ \t\f]*#.*?coding[:=]")  # Python's own way to name an encoding


def read_input(path: str) -> str:
    """The text of a file; `-` is standard input, and a shell's `<(command)` is a pipe of this process."""
    if path == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        try:
            return bounded(data, "<stdin>")
        except SourceError as error:
            return _script("<stdin>", data, error)
    if path.startswith(OWN_STREAMS):
        return read_text(Path(path))
    refuse_special(path)
    try:
        return read_text(Path(path))
    except SourceError as error:
        return _script(path, _bytes(path), error)


def _script(path: str, data: bytes, error: SourceError) -> str:
    """A script whose bytes are not UTF-8, which its shell reads all the same; of other files the error stands."""
    text = visible_bytes(data)
    declared = path.endswith(".py") and _DECLARED.match(data) is not None
    if not data or b"\0" in data or len(data) > MAX_BYTES or not (declared or is_textual(path, text)):
        raise error
    return text


def visible_bytes(data: bytes) -> str:
    """Text with one replacement character for each byte that is not UTF-8."""
    return _NOT_UTF8.sub("\ufffd", data.decode("utf-8-sig", errors="surrogateescape"))


def rough_text(path: str) -> str:
    """As much of a file's text as it takes to see what it is meant to be; nothing of one that cannot be read."""
    data = _bytes(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return visible_bytes(data).replace("\0", "")


def _bytes(path: str) -> bytes:
    try:
        return read_regular(Path(path))
    except UserError:
        return b""


def is_regular(path: str) -> bool:
    """Whether a directory entry can be read without waiting."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True  # reading it gives the error message


def refuse_special(path: str) -> None:
    if not is_regular(path):
        raise SourceError("a named pipe, socket or device is not read", path, fix="name a file, or use `-`")
