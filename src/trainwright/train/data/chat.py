"""Chats as training data: conversations (JSONL with `messages`) rendered by the tokenizer's chat template, packed whole
into rows of one length, with a mask of the tokens that are learned. Those longer than a row are cut, and counted.

A prepared folder of chats is one of tokens, and its subfolder `loss` holds the mask in the same layout."""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from trainwright.errors import UserError
from trainwright.train.data.chat_template import Message, Rendered, Template, last_answer, open_template, render
from trainwright.train.data.format import (
    CHAT_TEMPLATE,
    MANIFEST,
    TOKENIZER,
    TOKENIZER_SETTINGS,
    Manifest,
    Shard,
    TokenizerId,
    write_durably,
)
from trainwright.train.data.tokenizer import BUILT_IN, tokenizer_file

LOSS = "loss"
SHARD_TOKENS = 32 << 20


@dataclass
class Fit:
    """How many conversations (or pairs) fit into rows of `sequence` tokens, and what becomes of the others."""

    sequence: int
    holds: str  # "chats" or "pairs"
    total: int = 0
    cut: int = 0
    late: int = 0  # left out: the answer begins past the row
    unanswered: int = 0  # left out: there is no answer
    longest: int = 0  # tokens up to the end of the last answer

    @property
    def noun(self) -> str:
        return "conversation" if self.holds == "chats" else "pair"

    def whole_or_cut(self, one: Rendered) -> Rendered:
        return Rendered(one.tokens[: self.sequence], one.learned[: self.sequence])

    def chat(self, renderings: Sequence[Rendered]) -> list[Rendered]:
        """The renderings of a conversation that teach something within a row, counted."""
        answered = [one for one in renderings if any(one.learned)]
        kept = [one for one in answered if any(one.learned[: self.sequence])]
        self._count(answered, left_out=not kept)
        return [self.whole_or_cut(one) for one in kept]

    def pair(self, both: Sequence[Rendered]) -> list[Rendered]:
        """Both answers, or none where one of them begins past the row."""
        left_out = not all(any(one.learned[: self.sequence]) for one in both)
        self._count(both, left_out)
        return [] if left_out else [self.whole_or_cut(one) for one in both]

    def _count(self, renderings: Sequence[Rendered], left_out: bool) -> None:
        self.total += 1
        if not renderings:
            self.unanswered += 1
            return
        needed = max(len(one.learned) - one.learned[::-1].index(1) for one in renderings)
        self.longest = max(self.longest, needed)
        self.late += left_out
        self.cut += not left_out and needed > self.sequence

    def refuse_nothing(self, where: str) -> NoReturn:
        """Called where nothing is left: say why."""
        if self.late:
            every = f"the answer of every {self.noun} begins past a row of {self.sequence:,} tokens"
            raise UserError(every, where=where, fix=f"--sequence {self.longest}")
        keys = ("messages",) if self.holds == "chats" else ("chosen", "rejected")
        turns = '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'
        fix = ", ".join(f'"{key}": {turns}' for key in keys)
        raise UserError(
            f"the inputs hold no {self.noun} with a message of the assistant", where=where, fix=f"{{{fix}}}"
        )

    def remarks(self) -> list[str]:
        """What was cut or left out, in words; empty where nothing was."""
        lines, of = [], f"of {self.total:,} {self.noun}s"
        if self.unanswered:
            has, is_ = ("has", "is") if self.unanswered == 1 else ("have", "are")
            lines.append(f"{self.unanswered:,} {of} {has} no message of the assistant and {is_} left out")
        if self.cut or self.late:
            parts = [f"{self.cut:,} {of} {'is' if self.cut == 1 else 'are'} cut"]
            if self.late:
                verb, its = ("is", "its answer begins") if self.late == 1 else ("are", "their answers begin")
                parts.append(f"{self.late:,} {verb} left out, because {its} past the row")
            lines.append(f"a row of {self.sequence:,} tokens is too short: {'; '.join(parts)}")
            lines.append(f"the longest has {self.longest:,} tokens: --sequence {self.longest} keeps all whole")
        return lines


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


def prepare_chats(inputs: list[str], folder: Path, tokenizer: str, sequence: int, quiet: bool = False) -> Manifest:
    """Render and pack conversations into a prepared folder with rows of `sequence` tokens."""
    template, fit = open_template(tokenizer), Fit(sequence, "chats")
    chats = ((valid(value, where), where) for value, where in conversations(inputs))
    rendered = (one for messages, where in chats for one in fit.chat(render(template, messages, where)))
    manifest = write_rows(packed(rendered, sequence), folder, template, tokenizer, fit, tuple(inputs))
    say_what_is_missing(fit, quiet)
    return manifest


def prepare_pairs(inputs: list[str], folder: Path, tokenizer: str, sequence: int, quiet: bool = False) -> Manifest:
    """Preferences: a row with the chosen and a row with the rejected answer, one after the other. `chosen` and
    `rejected` are whole conversations, of which the last message is learned."""
    template, fit = open_template(tokenizer), Fit(sequence, "pairs")

    def rows() -> Iterator[list[Rendered]]:
        for row, where in conversations(inputs, key=""):
            if not isinstance(row, dict) or "chosen" not in row or "rejected" not in row:
                raise UserError("no `chosen` and `rejected` here", where=where, fix='{"chosen": […], "rejected": […]}')
            both = [last_answer(template, valid(row[key], where), where) for key in ("chosen", "rejected")]
            yield from ([one] for one in fit.pair(both))

    manifest = write_rows(rows(), folder, template, tokenizer, fit, tuple(inputs))
    say_what_is_missing(fit, quiet)
    return manifest


def say_what_is_missing(fit: Fit, quiet: bool) -> None:
    for line in () if quiet else fit.remarks():
        print(line, file=sys.stderr)


def write_rows(
    rows: Iterable[list[Rendered]], folder: Path, template: Template, tokenizer: str, fit: Fit,
    inputs: tuple[str, ...],
) -> Manifest:  # fmt: skip
    """A prepared folder of rows, filled up with the end token, and the mask beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    identity = template.id
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
        missing = -len(tokens) % fit.sequence
        if missing:
            tokens.extend([identity.eos] * missing)
            mask.extend([0] * missing)
            starts.append(len(tokens))
        if len(tokens) >= SHARD_TOKENS:
            flush(last=False)
    if not tokens and not shards:
        fit.refuse_nothing(", ".join(inputs))
    flush(last=True)
    own, loss = zip(*shards, strict=True)
    manifest = Manifest(identity, dtype, own, inputs, fit.sequence, fit.holds)
    keep_tokenizer_files(template, tokenizer, folder)
    masks = replace(manifest, tokenizer=TokenizerId("loss-mask", 2, 0), shards=loss)
    write_durably(folder / LOSS / MANIFEST, masks.to_json().encode())
    write_durably(folder / MANIFEST, manifest.to_json().encode())
    return manifest


def keep_tokenizer_files(template: Template, tokenizer: str, folder: Path) -> None:
    """Keep the tokenizer beside its tokens with the template that rendered them, so that a model which is trained on
    them is exported with both."""
    own = Path(tokenizer)
    kept = {name: (own / name).read_bytes() for name in TOKENIZER_SETTINGS if (own / name).is_file()}
    if template.text is not None:
        kept[CHAT_TEMPLATE] = template.text.encode()
    if tokenizer not in BUILT_IN:
        kept[TOKENIZER] = tokenizer_file(tokenizer).read_bytes()
    for name in {TOKENIZER, *TOKENIZER_SETTINGS} - kept.keys():
        (folder / name).unlink(missing_ok=True)  # of an earlier preparation
    for name, content in kept.items():
        write_durably(folder / name, content)


def _write_shard(folder: Path, name: str, values: Any, starts: Any) -> Shard:
    folder.mkdir(exist_ok=True)
    data, index = values.tobytes(), starts.tobytes()
    write_durably(folder / f"{name}.bin", data)
    write_durably(folder / f"{name}.idx", index)
    return Shard(
        name, len(values), len(starts) - 1, hashlib.sha256(data).hexdigest(), hashlib.sha256(index).hexdigest()
    )
