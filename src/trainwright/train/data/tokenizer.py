"""Tokenizers: plain bytes (built in, needs nothing) or any Hugging Face `tokenizers` file, also trained in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from trainwright.errors import UserError
from trainwright.train.data.format import TokenizerId, file_sha256, write_durably

END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")


PROTEINS = "esm2"


class Tokenizer(Protocol):
    """What `prepare` needs: an identity, and documents turned into raw token bytes, the end token included."""

    id: TokenizerId

    def encode(self, texts: list[str], dtype: str) -> Iterator[bytes]: ...

    def word(self, number: int) -> str:
        """The text of one token."""


class ByteTokenizer:
    """One token per byte of UTF-8; token 256 ends a document."""

    id = TokenizerId("bytes", vocab=257, eos=256)

    def encode(self, texts: list[str], dtype: str) -> Iterator[bytes]:
        width = 2 if dtype == "uint16" else 4
        end = (256).to_bytes(width, "little")
        for text in texts:
            raw = text.encode("utf-8", "surrogatepass")
            # A strided copy is a hundred times faster than a loop over the bytes.
            wide = bytearray(width * len(raw))
            wide[::width] = raw
            yield bytes(wide) + end

    def word(self, number: int) -> str:
        return "<|endoftext|>" if number == self.id.eos else chr(number)


class ProteinTokenizer:
    """ESM-2's alphabet: one token per residue, between <cls> and <eos>; an unknown letter is <unk>."""

    words = (
        "<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>",
    )  # fmt: skip
    id = TokenizerId(PROTEINS, vocab=len(words), eos=2)

    def __init__(self) -> None:
        unknown = self.words.index("<unk>")
        self.table = bytes(self.words.index(chr(b)) if chr(b) in self.words else unknown for b in range(256))

    def encode(self, texts: list[str], dtype: str) -> Iterator[bytes]:
        width = 2 if dtype == "uint16" else 4
        for text in texts:
            raw = b"\0" + text.encode("latin-1", "replace").translate(self.table) + bytes([self.id.eos])
            wide = bytearray(width * len(raw))
            wide[::width] = raw
            yield bytes(wide)

    def word(self, number: int) -> str:
        return self.words[number]


class FileTokenizer:
    """A `tokenizer.json`, run by the `tokenizers` package."""

    def __init__(self, path: Path, end_name: str = "") -> None:
        if not path.is_file():
            raise UserError("no such tokenizer file", where=str(path), fix="--tokenizer bytes, or a tokenizer.json")
        package = tokenizers_package()
        try:
            self.tokenizer = package.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing narrower
            raise UserError(f"not a tokenizer file: {error}", where=str(path), fix="a tokenizer.json") from error
        names = (end_name,) if end_name else END_NAMES
        end = next((i for n in names if (i := self.tokenizer.token_to_id(n)) is not None), None)
        if end is None:
            what = f"no token {end_name!r}" if end_name else "no token that ends a document"
            raise UserError(f"the tokenizer has {what}", where=str(path), fix="name its token with --end-token")
        # Token ids may have gaps, so counting the tokens is not enough.
        vocab = 1 + max(self.tokenizer.get_vocab().values())
        self.id = TokenizerId(path.name, vocab, end, file_sha256(path))

    def encode(self, texts: list[str], dtype: str) -> Iterator[bytes]:
        from array import array

        code = "H" if dtype == "uint16" else "I"
        for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            yield array(code, [*encoding.ids, self.id.eos]).tobytes()

    def word(self, number: int) -> str:
        return str(self.tokenizer.id_to_token(number))


BUILT_IN: dict[str, Callable[[], Tokenizer]] = {"bytes": ByteTokenizer, PROTEINS: ProteinTokenizer}


def open_tokenizer(name: str, end: str = "") -> Tokenizer:
    """`bytes`, `esm2` (residues of proteins), or the path of a tokenizer.json (or of a folder that holds one), with the
    word that ends a document."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    return FileTokenizer(tokenizer_file(name), end)


def tokenizer_file(name: str) -> Path:
    path = Path(name)
    return path / "tokenizer.json" if path.is_dir() else path


def train_bpe(texts: Iterable[str], vocab: int, path: Path) -> None:
    """Train a byte-level BPE of `vocab` tokens on `texts` and write it to `path`."""
    package = tokenizers_package()
    if vocab < 257:
        raise UserError(f"a byte-level BPE needs at least 257 tokens (256 bytes and an end token), not {vocab}")
    tokenizer = package.Tokenizer(package.models.BPE())
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_NAMES[0]],
        initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, tokenizer.to_str(pretty=True).encode())


def tokenizers_package() -> Any:
    """The `tokenizers` package, or a UserError that says how to install it."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise UserError(
            "tokenizer files need the `tokenizers` package, which is not installed here",
            fix="pip install tokenizers, or --tokenizer bytes",
        ) from error
    return tokenizers
