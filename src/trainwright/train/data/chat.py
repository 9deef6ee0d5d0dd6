"""Chats as training data: conversations (JSONL with `messages`) rendered by the tokenizer's chat template, packed whole
into rows of one length, with a mask of the tokens that are learned: what the assistant says and the end of its turns.

A prepared folder of chats is one of tokens, and its subfolder `loss` holds the mask in the same layout."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trainwright.errors import UserError
from trainwright.train.data.format import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    Shard,
    TokenizerId,
    write_durably,
)
from trainwright.train.data.tokenizer import BUILT_IN, open_tokenizer, tokenizer_file

LOSS = "loss"
SHARD_TOKENS = 32 << 20
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One conversation as tokens, and for each whether it is learned."""

    tokens: list[int]
    learned: list[int]  # 0 or 1


class Template(Protocol):
    """What turns messages into tokens."""

    id: TokenizerId

    def tokens(self, messages: Sequence[Message], turns: AbstractSet[int]) -> tuple[Rendered, set[int]]:
        """The conversation with those of the assistant's `turns` learned that stand in it as they would if they were
        its end; and which these are."""


def encode_apart(encode: Callable[[str], list[int]], text: str, cuts: Sequence[int]) -> list[list[int]]:
    """The tokens of a text, part by part. Where a token would span a cut, the parts are encoded apart: a prompt ends
    at the cut when the model is used, so what it answers can only begin there."""
    parts: list[list[int]] = []
    begin, given, rest = 0, 0, encode(text)  # `rest` is of the text from `begin`; `given` of its tokens are in parts
    last = 0
    for cut in cuts:
        head = encode(text[begin:cut])
        if head[:given] != rest[:given]:  # what was given already depends on what follows
            begin, given, head, rest = last, 0, encode(text[last:cut]), encode(text[last:])
        parts.append(head[given:])
        last, given = cut, len(head)
        if rest[:given] != head:
            begin, given, rest = cut, 0, encode(text[cut:])
    return [*parts, rest[given:]]


def joined(parts: Sequence[list[int]], learned: AbstractSet[int]) -> Rendered:
    """Parts as one, of which those with these numbers are learned."""
    mask = [int(number in learned) for number, part in enumerate(parts) for _ in part]
    return Rendered([token for part in parts for token in part], mask)


class PlainTemplate:
    """For tokenizers without a chat template: ChatML's layout, in plain text where it has no tokens of its own."""

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer = open_tokenizer(tokenizer)
        self.id = self.tokenizer.id

    def tokens(self, messages: Sequence[Message], turns: AbstractSet[int]) -> tuple[Rendered, set[int]]:
        parts: list[list[int]] = []
        for message in messages:
            head = f"<|im_start|>{message['role']}\n"
            cut = len(head) if message["role"] == "assistant" else 0
            before, after = encode_apart(self._text, head + message["content"], [cut])
            parts += [before, [*after, self.id.eos]]
        return joined(parts, {2 * turn + 1 for turn in turns}), set(turns)

    def _text(self, text: str) -> list[int]:
        if not text:
            return []
        dtype = "uint16" if self.id.vocab <= 1 << 16 else "uint32"
        raw = next(iter(self.tokenizer.encode([text], dtype)))
        ids = array("H" if dtype == "uint16" else "I")
        ids.frombytes(raw)
        return ids.tolist()[:-1]  # without the end of a document


class FolderTemplate:
    """The chat template of a tokenizer folder, rendered by transformers."""

    def __init__(self, folder: Path) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise UserError(
                "chat templates need the `transformers` package", where=str(folder), fix="pip install transformers"
            ) from error
        self.tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
        self.id = open_tokenizer(str(folder), self.tokenizer.eos_token or "").id

    def tokens(self, messages: Sequence[Message], turns: AbstractSet[int]) -> tuple[Rendered, set[int]]:
        text, cuts, learned = self._text(messages), list[int](), dict[int, int]()
        for number in assistant_turns(messages):
            before, after = self._text(messages[:number], prompt=True), self._text(messages[: number + 1])
            if text.startswith(after) and after.startswith(before):
                cuts += [len(before), len(after)]
                learned[number] = len(cuts) - 1
        here = turns & learned.keys()
        return joined(encode_apart(self._encode, text, cuts), {learned[turn] for turn in here}), set(here)

    def _text(self, messages: Sequence[Message], prompt: bool = False) -> str:
        """The conversation so far; `prompt` adds what introduces the assistant's turn."""
        options = {"tokenize": False, "add_generation_prompt": prompt}
        return str(self.tokenizer.apply_chat_template(list(messages), **options))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def open_template(tokenizer: str) -> Template:
    """The chat template of a tokenizer folder, where it has one; else the plain one."""
    folder = Path(tokenizer)
    settings = folder / "tokenizer_config.json"
    own = (folder / "chat_template.jinja").is_file()
    if not own and settings.is_file():
        own = bool(json.loads(settings.read_text(encoding="utf-8")).get("chat_template"))
    return FolderTemplate(folder) if own else PlainTemplate(tokenizer)


def assistant_turns(messages: Sequence[Message]) -> list[int]:
    return [number for number, message in enumerate(messages) if message["role"] == "assistant"]


def render(template: Template, messages: Sequence[Message], where: str) -> list[Rendered]:
    """A conversation with every answer learned. An answer that the template renders differently once others follow is
    learned from a rendering of its own, in which it is the last: that is what the model sees when it answers."""
    missing, end = set(assistant_turns(messages)), len(messages)
    rendered, learned = template.tokens(messages, missing)
    result = [rendered]
    while missing := missing - learned:
        if end == max(missing) + 1:
            raise UserError(
                f"the chat template does not introduce message {end - 1} as its generation prompt does", where=where,
                fix="a template whose messages of the assistant begin with its generation prompt",
            )  # fmt: skip
        end = max(missing) + 1
        rendered, learned = template.tokens(messages[:end], missing)
        result.append(rendered)
    return result


def conversations(inputs: Iterable[str], key: str = "messages") -> Iterator[tuple[Any, str]]:
    """(value of `key`, where) of every line of JSONL files that is not blank."""
    for name in inputs:
        path = Path(name)
        if not path.is_file():
            raise UserError("no such file", where=name, fix="JSONL files with chats")
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                where = f"{name}: line {number}"
                try:
                    row = json.loads(line)
                    yield (row if key == "" else row[key]), where
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(
                        f"no {key or 'JSON'} here ({error!r})", where=where, fix=f'{{"{key}": […]}}'
                    ) from error


def valid(messages: Any, where: str) -> list[Message]:
    """The messages of a conversation, each with a role and a text."""
    fine = isinstance(messages, list) and messages and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    )  # fmt: skip
    if not fine:
        fix = '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'
        raise UserError("not a list of messages with role and content", where=where, fix=fix)
    return list(messages)


def packed(rendered: Iterable[Rendered], sequence: int, window: int = 1024) -> Iterator[list[Rendered]]:
    """Rows of at most `sequence` tokens, each conversation whole: every next one goes into the fullest open row that
    has room. At most `window` rows are open."""
    rows: list[tuple[int, list[Rendered]]] = []
    for one in rendered:
        size = len(one.tokens)
        fits = [(room, at) for at, (room, _) in enumerate(rows) if room >= size]
        if fits:
            room, at = min(fits)
            rows[at] = room - size, [*rows[at][1], one]
        else:
            rows.append((sequence - size, [one]))
        if len(rows) > window:
            yield rows.pop(rows.index(min(rows, key=lambda row: row[0])))[1]
    yield from (row for _, row in rows)


def cut(one: Rendered, sequence: int) -> Rendered:
    return Rendered(one.tokens[:sequence], one.learned[:sequence])


def prepare_chats(inputs: list[str], folder: Path, tokenizer: str, sequence: int) -> Manifest:
    """Render and pack conversations into a prepared folder with rows of `sequence` tokens."""
    template = open_template(tokenizer)
    chats = ((valid(value, where), where) for value, where in conversations(inputs))
    rendered = (cut(one, sequence) for messages, where in chats for one in render(template, messages, where))
    learned = (one for one in rendered if any(one.learned))
    return write_rows(packed(learned, sequence), folder, template.id, tokenizer, sequence, tuple(inputs))


def prepare_pairs(inputs: list[str], folder: Path, tokenizer: str, sequence: int) -> Manifest:
    """Preferences: a row with the chosen and a row with the rejected answer, one after the other. `chosen` and
    `rejected` are whole conversations, of which the last message is learned."""
    template = open_template(tokenizer)

    def rows() -> Iterator[list[Rendered]]:
        for row, where in conversations(inputs, key=""):
            if not isinstance(row, dict) or "chosen" not in row or "rejected" not in row:
                raise UserError("no `chosen` and `rejected` here", where=where, fix='{"chosen": […], "rejected": […]}')
            both = [last_answer(template, valid(row[key], where), where) for key in ("chosen", "rejected")]
            if all(any(one.learned[:sequence]) for one in both):  # an answer beyond the row's end teaches nothing
                yield from ([cut(one, sequence)] for one in both)

    return write_rows(rows(), folder, template.id, tokenizer, sequence, tuple(inputs))


def last_answer(template: Template, messages: list[Message], where: str) -> Rendered:
    """A conversation of which only the last message is learned."""
    if messages[-1]["role"] != "assistant":
        raise UserError("the last message is not the assistant's", where=where)
    one, learned = template.tokens(messages, {len(messages) - 1})
    if not learned:
        raise UserError(
            "the chat template does not introduce the last message as its generation prompt does", where=where
        )
    return one


def write_rows(
    rows: Iterable[list[Rendered]], folder: Path, identity: TokenizerId, tokenizer: str, sequence: int,
    inputs: tuple[str, ...],
) -> Manifest:  # fmt: skip
    """A prepared folder of rows, filled up with the end token, and the mask beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = "uint16" if identity.vocab <= 1 << 16 else "uint32"
    code = "H" if dtype == "uint16" else "I"
    tokens, mask, starts = array(code), array(code), array("Q", [0])
    shards: list[tuple[Shard, Shard]] = []

    def flush(last: bool) -> None:
        if last:
            tokens.append(identity.eos)  # a sample reads the token after it
            mask.append(0)
            starts.append(len(tokens))
        name = f"shard-{len(shards):05d}"
        both = _write_shard(folder, name, tokens, starts), _write_shard(folder / LOSS, name, mask, starts)
        shards.append(both)
        del tokens[:], mask[:], starts[1:]

    for row in rows:
        for one in row:
            tokens.extend(one.tokens)
            mask.extend(one.learned)
            starts.append(len(tokens))
        missing = -len(tokens) % sequence
        if missing:
            tokens.extend([identity.eos] * missing)
            mask.extend([0] * missing)
            starts.append(len(tokens))
        if len(tokens) >= SHARD_TOKENS:
            flush(last=False)
    if not tokens and not shards:
        raise UserError("the inputs hold no conversation with an answer to learn", where=", ".join(inputs))
    flush(last=True)
    own, loss = zip(*shards, strict=True)
    manifest = Manifest(identity, dtype, own, inputs, sequence)
    if tokenizer not in BUILT_IN:
        write_durably(folder / TOKENIZER, tokenizer_file(tokenizer).read_bytes())
    masks = replace(manifest, tokenizer=TokenizerId("loss-mask", 2, 0), shards=loss)
    write_durably(folder / LOSS / MANIFEST, masks.to_json().encode())
    write_durably(folder / MANIFEST, manifest.to_json().encode())
    return manifest


def _write_shard(folder: Path, name: str, values: Any, starts: Any) -> Shard:
    folder.mkdir(exist_ok=True)
    data, index = values.tobytes(), starts.tobytes()
    write_durably(folder / f"{name}.bin", data)
    write_durably(folder / f"{name}.idx", index)
    return Shard(
        name, len(values), len(starts) - 1, hashlib.sha256(data).hexdigest(), hashlib.sha256(index).hexdigest()
    )
