"""Token shards on disk: `shard-00000.bin` (raw tokens), `shard-00000.idx` (where documents start), `manifest.json`.

The manifest is written last and names every file with its size and checksum, so a folder without one is unfinished
and a folder with one can be verified."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.disk import removed_on_error

FORMAT = "trainwright-tokens"
VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"  # the tokenizer that made the tokens, kept beside them
CHAT_TEMPLATE = "chat_template.jinja"
# What a tokenizer's folder may hold beside it; chats and pairs keep these too.
TOKENIZER_SETTINGS = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "tokenizer.model", CHAT_TEMPLATE,
)  # fmt: skip
WIDTH = {"uint16": 2, "uint32": 4}  # bytes per token


@dataclass(frozen=True, slots=True)
class TokenizerId:
    """Which tokenizer made the tokens: enough to refuse mixing two, and to know the vocabulary size."""

    name: str  # "bytes", or the file's name
    vocab: int
    eos: int
    sha256: str = ""  # of the tokenizer file; empty for the built-in bytes

    def is_same(self, other: TokenizerId) -> bool:
        """Whether they are one tokenizer: its file counts, whatever its name; the built-in ones have no file."""
        return self.sha256 == other.sha256 if self.sha256 or other.sha256 else self.name == other.name

    @property
    def described(self) -> str:
        """For messages: two files may have one name."""
        return f"{self.name!r} (sha256 {self.sha256[:8]}…)" if self.sha256 else repr(self.name)


@dataclass(frozen=True, slots=True)
class Shard:
    """One pair of files: the tokens and the index of the documents in them."""

    name: str
    tokens: int
    documents: int
    sha256: str
    index_sha256: str
    unit: str = ""  # fingerprint of the inputs it was made from, which is what makes `prepare` resumable
    continues: bool = False  # its first document began in the shard before

    @property
    def data_file(self) -> str:
        return f"{self.name}.bin"

    @property
    def index_file(self) -> str:
        return f"{self.name}.idx"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a prepared folder holds."""

    tokenizer: TokenizerId
    dtype: str
    shards: tuple[Shard, ...]
    inputs: tuple[str, ...] = ()
    rows: int = 0  # samples of this many tokens lie one after another (chats, pairs); 0: any length can be cut
    holds: str = ""  # "chats", or "pairs" of chosen and rejected answers; empty: text
    format: str = field(default=FORMAT)
    version: int = VERSION

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def documents(self) -> int:
        return sum(s.documents - (s.continues and s.tokens > 0) for s in self.shards)

    @property
    def fingerprint(self) -> str:
        """Identifies the content, wherever the folder is."""
        words = json.dumps([asdict(self.tokenizer), [s.sha256 for s in self.shards]])
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def data_bytes(self, shard: Shard) -> int:
        return shard.tokens * WIDTH[self.dtype]

    def index_bytes(self, shard: Shard) -> int:
        return (shard.documents + 1) * 8

    def to_json(self) -> str:
        values = {**asdict(self), "tokens": self.tokens, "documents": self.documents}
        for name in ("rows", "holds"):
            if not values[name]:
                del values[name]
        for shard in values["shards"]:
            if not shard["continues"]:
                del shard["continues"]  # versions that do not know it can read the rest
        return json.dumps(values, indent=1) + "\n"


def parse_manifest(text: str, where: str) -> Manifest:
    """A manifest from its JSON; anything else is a UserError with the path."""
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["format"] != FORMAT or raw["version"] != VERSION:
            raise UserError(
                f"format {raw['format']} version {raw['version']}, this trainer reads {FORMAT} version {VERSION}",
                where=where,
                fix="prepare the data again with `trainwright data prepare`",
            )
        shards = tuple(Shard(**s) for s in raw["shards"])
        tokenizer = TokenizerId(**raw["tokenizer"])
        rows, holds = raw.get("rows", 0), raw.get("holds", "")
        manifest = Manifest(tokenizer, raw["dtype"], shards, tuple(raw.get("inputs", ())), rows, holds)
        require_numbers(manifest)
        return manifest
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"not a manifest of token shards ({error})", where=where, fix="prepare the folder again"
        ) from error


def require_numbers(manifest: Manifest) -> None:
    """Raise TypeError where a count is not a whole number or the dtype is unknown."""
    numbers = [manifest.tokenizer.vocab, manifest.tokenizer.eos]
    numbers += [number for s in manifest.shards for number in (s.tokens, s.documents)]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise TypeError("a count is not a whole number")
    if manifest.dtype not in WIDTH:
        raise TypeError(f"dtype is {manifest.dtype!r}, not one of {', '.join(WIDTH)}")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder."""
    path = folder / MANIFEST
    if not path.is_file():
        unfinished = any(folder.glob("shard-*.bin"))
        raise UserError(
            "preparation did not finish" if unfinished else "no prepared token shards here",
            where=str(folder),
            fix="run `trainwright data prepare` again, it continues" if unfinished else "`trainwright data prepare`",
        )
    return parse_manifest(path.read_text(encoding="utf-8"), str(path))


def check_sizes(manifest: Manifest, folder: Path) -> None:
    """Require every shard with the size in the manifest; the UserError names both sizes."""
    for name, due in files_of(manifest):
        path = folder / name
        have = path.stat().st_size if path.exists() else None
        if have != due:
            raise UserError(
                f"shard is {'missing' if have is None else f'{have:,} bytes'}, the manifest says {due:,} bytes",
                where=str(path),
                fix="copy the file again, or run `trainwright data prepare` on the folder to rebuild that shard",
            )


def files_of(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """Every file the manifest names, with its size."""
    for shard in manifest.shards:
        yield shard.data_file, manifest.data_bytes(shard)
        yield shard.index_file, manifest.index_bytes(shard)


def file_sha256(path: Path) -> str:
    """The checksum of a file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def damaged(manifest: Manifest, folder: Path) -> list[str]:
    """The names of files whose content is not what was written; empty when the folder is intact."""
    wrong = []
    for shard in manifest.shards:
        for name, due in ((shard.data_file, shard.sha256), (shard.index_file, shard.index_sha256)):
            path = folder / name
            if not path.is_file() or file_sha256(path) != due:
                wrong.append(name)
    return wrong


def same_tokenizer(manifest: Manifest, content: bytes) -> bytes | None:
    """The content of a tokenizer file, if it is the one that made these tokens."""
    return content if hashlib.sha256(content).hexdigest() == manifest.tokenizer.sha256 else None


def write_durably(path: Path, content: bytes) -> None:
    """Write a temporary file, flush it to disk, rename it: a reader sees the old file or the new one."""
    own = beside(path)
    with removed_on_error(own, where=path, needed=len(content)):
        with own.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(own, path)


def remove_unfinished(path: Path) -> None:
    """Remove what `write_durably` leaves beside a path when its process is killed."""
    for leftover in path.parent.glob(f".{path.name}.{'[0-9a-f]' * 12}"):
        leftover.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """A unique hidden name next to a path. A process id would not be unique: ranks on several nodes or in several
    containers share a file system and may have the same ids."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}")
