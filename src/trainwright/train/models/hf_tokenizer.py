"""The tokenizer that belongs to a run, as Hugging Face files in `RUN/tokenizer`: written when training starts (from the
prepared data) or by `train import`, and part of every export together with the right token ids."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from trainwright.train.data.format import TOKENIZER_SETTINGS, TokenizerId, write_durably
from trainwright.train.data.special_tokens import SampleTokens
from trainwright.train.data.tokenizer import PROTEINS, ProteinTokenizer

FOLDER, FILE, SETTINGS, IDS = "tokenizer", "tokenizer.json", "tokenizer_config.json", "token_ids.json"
IMPORTED = (FILE, *TOKENIZER_SETTINGS)
ID_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
KEPT_IDS = (*ID_KEYS, "mask_token_id")

UNLIKELY = -1e6  # the score of a Unigram's word that is never chosen
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def keep_tokenizer(
    run: Path,
    identity: TokenizerId,
    content: bytes | None,
    added: SampleTokens = SampleTokens(),
    kept: dict[str, bytes] | None = None,
    base: Path | None = None,
) -> None:
    """Write the tokenizer of the training data into the run folder, unless one was imported. It gets the tokens that
    the objective added: what was trained with a mask is used with that mask. Its settings are those that the data
    kept; else those of the base model, where that has the same tokenizer; else what is known of it."""
    folder, complete = run / FOLDER, data_table(identity, content, added)
    if complete is None:
        return
    if (folder / FILE).exists():
        if not first_difference(complete, json.loads((folder / FILE).read_text(encoding="utf-8"))):
            return
        aside = run / f"{FOLDER}.aside"  # of an earlier start on other data: the run began anew
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    folder.mkdir(parents=True, exist_ok=True)
    proteins, table = identity.name == PROTEINS and content is None, plain_table(identity, content)
    end = token_of(table, identity.eos)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
    settings |= {"clean_up_tokenization_spaces": False}
    if proteins:
        settings |= {f"{name}_token": f"<{name}>" for name in ("cls", "pad", "unk", "mask")}
    original = content if content is not None else json.dumps(table).encode()
    files, ids = settings_of_base(base, original)
    files |= kept or {}
    known = with_tokens(table, added, identity.eos)
    stated = json.loads(files[SETTINGS]) if SETTINGS in files else settings
    roles = {role: token_of(table, number) for role, number in added.roles.items()}
    if roles or SETTINGS not in files:
        files[SETTINGS] = (json.dumps(stated | roles, indent=1) + "\n").encode()
    ends, own = ids.get("eos_token_id"), added.in_model(identity.eos)  # one, or several that end an answer
    if own not in (ends if isinstance(ends, list) else [ends]):
        ends = own
    ids |= {f"{role}_id": number for role, number in added.roles.items() if f"{role}_id" in KEPT_IDS}
    ids = {**dict.fromkeys(ID_KEYS), **ids, "eos_token_id": ends}
    files[FILE] = original if known else json.dumps(table).encode()
    for name, text in {IDS: json.dumps(ids).encode(), **files}.items():
        write_durably(folder / name, text)


def plain_table(identity: TokenizerId, content: bytes | None) -> dict[str, Any]:
    """The tokenizer of the data as a tokenizer.json."""
    if content is not None:
        table: dict[str, Any] = json.loads(content)
        return table
    return protein_tokenizer() if identity.name == PROTEINS else byte_tokenizer()


def data_table(identity: TokenizerId | None, content: bytes | None, added: SampleTokens) -> dict[str, Any] | None:
    """The same with what the objective adds; None where the data does not keep its tokenizer."""
    if identity is None or (identity.sha256 and content is None):
        return None
    table = plain_table(identity, content)
    with_tokens(table, added, identity.eos)
    return table


def first_difference(table: dict[str, Any], other: dict[str, Any], missing: Collection[str] = ()) -> str:
    """The first word of a tokenizer that another one does not have, or not as the same token; empty where it has all.
    Words in `missing` it may lack."""
    mine, theirs = words_of(table), words_of(other)
    for number in sorted(mine):
        if number in theirs and mine[number] != theirs[number]:
            return f"token {number} is {mine[number]!r}, not {theirs[number]!r}"
        if number not in theirs and mine[number] not in missing:
            return f"token {number} is {mine[number]!r}, which is not there"
    return ""


def words_of(table: dict[str, Any]) -> dict[int, str]:
    """Every token of a tokenizer.json."""
    vocab = table.get("model", {}).get("vocab", {})
    pairs = ((at, text) for text, at in vocab.items()) if isinstance(vocab, dict) else enumerate(w[0] for w in vocab)
    return {**dict(pairs), **{entry["id"]: entry["content"] for entry in table.get("added_tokens", [])}}


def settings_of_base(base: Path | None, content: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The settings and token ids beside the tokenizer of a base model (a Hugging Face folder, or a run's own one),
    where it is this tokenizer; else nothing."""
    if base is None or not (base / FILE).is_file() or (base / FILE).read_bytes() != content:
        return {}, {}
    files = {name: (base / name).read_bytes() for name in TOKENIZER_SETTINGS if (base / name).is_file()}
    known = next((path for path in (base / IDS, base / "config.json") if path.is_file()), None)
    config = json.loads(known.read_text(encoding="utf-8")) if known else {}
    return files, {key: config[key] for key in KEPT_IDS if key in config}


def import_tokenizer(source: Path, run: Path, config: dict[str, Any]) -> None:
    """Keep the tokenizer files and token ids of a Hugging Face folder with the run."""
    folder = run / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in IMPORTED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    ids = {key: config[key] for key in KEPT_IDS if key in config}
    write_durably(folder / IDS, json.dumps(ids).encode())


def export_tokenizer(run: Path | None, folder: Path) -> list[str]:
    """Copy the run's tokenizer files to an export; their names."""
    source = run / FOLDER if run else None
    names = [name for name in IMPORTED if source and (source / name).is_file()]
    for name in names:
        assert source is not None
        shutil.copyfile(source / name, folder / name)
    return names


def token_ids(run: Path | None, saved: dict[str, Any] | None, exchanged: Sequence[int] | None = None) -> dict[str, Any]:
    """The token ids for config.json: of the run's tokenizer, else of the one named in the checkpoint, of which two
    tokens may be exchanged in the model."""
    path = run / FOLDER / IDS if run else None
    if path and path.is_file():
        return {**dict.fromkeys(ID_KEYS), **json.loads(path.read_text(encoding="utf-8"))}
    one, other = exchanged or (None, None)
    end = saved["eos"] if saved else None
    return {**dict.fromkeys(ID_KEYS), "eos_token_id": other if end == one else one if end == other else end}


def with_tokens(table: dict[str, Any], added: SampleTokens, end: int) -> bool:
    """Add to a tokenizer.json the tokens that it lacks, and what stands around a sample; whether it had all of it."""
    if added.exchanged:
        exchange(table, *added.exchanged)
    lacking = {text: number for text, number in added.names.items() if token_of(table, number) is None}
    words = table["model"].get("vocab")
    if lacking and isinstance(words, dict):  # an added token that the model knows keeps its id, also beyond a gap
        words |= {entry["content"]: entry["id"] for entry in table.get("added_tokens", [])} | lacking
    for text, number in sorted(lacking.items(), key=lambda item: item[1]):
        if isinstance(words, list):
            place(words, number)[:] = [text, UNLIKELY]
        table.setdefault("added_tokens", []).append({"id": number, "content": text, **SPECIAL})
    around = added.closed and (table.get("post_processor") or {}).get("type") in (None, "ByteLevel")
    if around:
        table["post_processor"] = around_samples(table, added.begin, added.in_model(end))
    return not lacking and not around and not added.exchanged


def exchange(table: dict[str, Any], one: int, other: int) -> None:
    """Give the words of a tokenizer.json at these two ids each other's id; one of them may have no word."""
    ids = {one: other, other: one}
    model = table["model"]
    words = model.get("vocab")
    if isinstance(words, dict):
        words |= {text: ids[at] for text, at in words.items() if at in ids}
    elif isinstance(words, list):
        last = place(words, max(one, other))
        words[max(one, other)], words[min(one, other)] = words[min(one, other)], last
        model["unk_id"] = ids.get(model.get("unk_id"), model.get("unk_id"))
    for entry in table.get("added_tokens", []):
        entry["id"] = ids.get(entry["id"], entry["id"])
    around = table.get("post_processor") or {}
    for processor in (around, *around.get("processors", [])):
        special = processor.get("special_tokens", {})
        for entry in special.values() if isinstance(special, dict) else ():
            entry["ids"] = [ids.get(at, at) for at in entry["ids"]]
        for role in ("sep", "cls"):
            if role in processor:
                processor[role] = [processor[role][0], ids.get(processor[role][1], processor[role][1])]
    if table.get("padding"):
        table["padding"]["pad_id"] = ids.get(table["padding"]["pad_id"], table["padding"]["pad_id"])


def place(words: list[list[Any]], number: int) -> list[Any]:
    """The entry of a Unigram's word list at this id; a list that is too short gets words that no text has."""
    words += [[f"<unused_{n}>", UNLIKELY] for n in range(len(words), number + 1)]
    return words[number]


def around_samples(table: dict[str, Any], begin: int | None, end: int) -> dict[str, Any]:
    """The post-processor that puts a sample between these tokens."""
    words = {number: token_of(table, number) or "" for number in (begin, end) if number is not None}
    before, after = ([{"SpecialToken": {"id": words[n], "type_id": 0}}] if n in words else [] for n in (begin, end))
    one, two = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
    return {
        "type": "TemplateProcessing", "single": [*before, one, *after], "pair": [*before, one, *after, two, *after],
        "special_tokens": {word: {"id": word, "ids": [n], "tokens": [word]} for n, word in words.items()},
    }  # fmt: skip


def token_of(table: dict[str, Any], number: int) -> str | None:
    """The text of a token in a tokenizer.json."""
    added = {entry["id"]: entry["content"] for entry in table.get("added_tokens", [])}
    if number in added:
        return added[number]
    vocab = table.get("model", {}).get("vocab", {})
    return next((text for text, at in vocab.items() if at == number), None) if isinstance(vocab, dict) else None


def protein_tokenizer() -> dict[str, Any]:
    """ESM-2's alphabet as a tokenizer.json: a token per letter, between <cls> and <eos>."""
    words = ProteinTokenizer.words
    ends = {word: {"id": word, "ids": [words.index(word)], "tokens": [word]} for word in ("<cls>", "<eos>")}
    begin, sequence, end = (
        {"SpecialToken": {"id": "<cls>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<eos>", "type_id": 0}},
    )
    pair = [begin, sequence, end, {"Sequence": {"id": "B", "type_id": 0}}, end]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": word, **SPECIAL} for n, word in enumerate(words) if len(word) > 1],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, sequence, end], "pair": pair, "special_tokens": ends,
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "<unk>"},
    }  # fmt: skip


def byte_tokenizer() -> dict[str, Any]:
    """The built-in byte tokenizer as a tokenizer.json: a byte-level BPE without merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}  # fmt: skip
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
