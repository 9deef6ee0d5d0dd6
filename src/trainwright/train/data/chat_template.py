"""Chat templates: a conversation as tokens, with those marked that are learned: what the assistant says and the end of
its turns."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainwright.errors import UserError
from trainwright.train.data.format import CHAT_TEMPLATE, TokenizerId
from trainwright.train.data.tokenizer import open_tokenizer

Message = dict[str, str]
# What PlainTemplate renders, for those who use the model.
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + END }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """One conversation as tokens, and for each whether it is learned."""

    tokens: list[int]
    learned: list[int]  # 0 or 1


class Template(Protocol):
    """What turns messages into tokens."""

    id: TokenizerId
    text: str | None  # of the template, where the tokenizer's folder does not hold it

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
        self.text: str | None = PLAIN.replace("END", json.dumps(self.tokenizer.word(self.id.eos)))

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

    text: str | None = None

    def __init__(self, folder: Path) -> None:
        try:
            import jinja2
            from transformers import AutoTokenizer
        except ImportError as error:
            what = "chat templates need the packages `transformers` and `jinja2`"
            raise UserError(what, where=str(folder), fix="pip install transformers jinja2") from error
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
        except Exception as error:  # the package raises nothing narrower
            what = f"transformers cannot read this tokenizer: {type(error).__name__}: {error}"
            raise UserError(what, where=str(folder), fix="a folder that `save_pretrained` wrote") from error
        self.folder, self.syntax_error, self.template_error = folder, jinja2.TemplateSyntaxError, jinja2.TemplateError
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
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), **options))
        except self.syntax_error as error:
            what = f"the chat template is not valid Jinja: {error.message} at line {error.lineno}"
            fix = "correct it there, in chat_template.jinja or tokenizer_config.json"
            raise UserError(what, where=str(self.folder), fix=fix) from error
        except Exception as error:  # a template is a program, and can fail as any other
            kind = "" if isinstance(error, self.template_error) else f"{type(error).__name__}: "
            what = f"the chat template cannot render this conversation: {kind}{error}"
            raise UserError(what, fix=f"change the conversation, or the template in {self.folder}") from error

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def open_template(tokenizer: str) -> Template:
    """The chat template of a tokenizer folder, where it has one; else the plain one."""
    folder = Path(tokenizer)
    settings = folder / "tokenizer_config.json"
    own = (folder / CHAT_TEMPLATE).is_file()
    if not own and settings.is_file():
        try:
            own = bool(dict(json.loads(settings.read_text(encoding="utf-8"))).get("chat_template"))
        except (ValueError, TypeError) as error:
            fix = "the file that came with the tokenizer"
            raise UserError(f"not a JSON object ({error})", where=str(settings), fix=fix) from error
    return FolderTemplate(folder) if own else PlainTemplate(tokenizer)


def tokens_of(
    template: Template, messages: Sequence[Message], turns: AbstractSet[int], where: str
) -> tuple[Rendered, set[int]]:
    """As `Template.tokens`, with errors that name the line of the conversation."""
    try:
        return template.tokens(messages, turns)
    except UserError as error:
        raise UserError(error.what, where=error.where or where, fix=error.fix) from error


def assistant_turns(messages: Sequence[Message]) -> list[int]:
    return [number for number, message in enumerate(messages) if message["role"] == "assistant"]


def render(template: Template, messages: Sequence[Message], where: str) -> list[Rendered]:
    """A conversation with every answer learned. An answer that the template renders differently once others follow is
    learned from a rendering of its own, in which it is the last: that is what the model sees when it answers."""
    missing, end = set(assistant_turns(messages)), len(messages)
    rendered, learned = tokens_of(template, messages, missing, where)
    result = [rendered]
    while missing := missing - learned:
        if end == max(missing) + 1:
            raise UserError(
                f"the chat template does not introduce message {end - 1} as its generation prompt does", where=where,
                fix="a template whose messages of the assistant begin with its generation prompt",
            )  # fmt: skip
        end = max(missing) + 1
        rendered, learned = tokens_of(template, messages[:end], missing, where)
        result.append(rendered)
    return result


def last_answer(template: Template, messages: list[Message], where: str) -> Rendered:
    """A conversation of which only the last message is learned."""
    if messages[-1]["role"] != "assistant":
        raise UserError(
            "the last message is not the assistant's", where=where, fix='end with {"role": "assistant", "content": "…"}'
        )
    one, learned = tokens_of(template, messages, {len(messages) - 1}, where)
    if not learned:
        raise UserError(
            "the chat template does not introduce the last message as its generation prompt does", where=where,
            fix="a template whose messages of the assistant begin with its generation prompt",
        )  # fmt: skip
    return one
