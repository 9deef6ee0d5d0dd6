"""Kinds of prepared data: text, chats, pairs. An objective takes its own kind only; another would train something else
without a word."""

from __future__ import annotations

from typing import NamedTuple

from trainwright.errors import UserError
from trainwright.train.data.builtin import HOLDS, PROTEINS, STDLIB, builtin_folder
from trainwright.train.data.source import Files


class Prepared(NamedTuple):
    """A kind of data: its name, the verb that prepares it, and the objective of decoders that trains on it."""

    noun: str
    verb: str
    objective: str = ""


PREPARED = {
    "": Prepared("text", "trainwright data prepare"),
    "chats": Prepared("chats", "trainwright data chat", "sft"),
    "pairs": Prepared("pairs", "trainwright data pairs", "dpo"),
}  # by what a manifest says that its folder holds


def require_kind(files: Files, wanted: str, for_decoders: bool) -> None:
    """Refuse data that does not hold what is wanted; `for_decoders` says that sft and dpo could be meant."""
    manifest, own = files.manifest, PREPARED[wanted]
    if manifest.rows and not manifest.holds:
        what = "the data was prepared by an earlier version, which did not tell chats and pairs apart"
        raise UserError(what, where=files.where, fix="`trainwright data chat` or `trainwright data pairs` again")
    if manifest.holds == wanted:
        return
    if not manifest.holds:
        fix = f"`{own.verb}` prepares them; builtin:{wanted} is there to try"
        raise UserError(f"the data holds no {wanted}", where=files.where, fix=fix)
    raise UserError(
        f"the data holds {manifest.holds}, and this objective trains on {own.noun}",
        where=files.where,
        fix=_objective_or(manifest.holds, for_decoders, f"{own.noun} of `{own.verb}`"),
    )


def resolved(name: str, wanted: str, for_decoders: bool, rows: int) -> str:
    """The data set that is meant: built-in chats and pairs are a folder with rows of this many tokens."""
    if not name.startswith("builtin:"):
        return name
    text = STDLIB if for_decoders else f"{STDLIB} or {PROTEINS}"
    own = f"builtin:{wanted}" if wanted else text
    if name not in HOLDS:
        raise UserError(f"there is no built-in data {name!r}", fix=own)
    holds = HOLDS[name]
    if holds != wanted:
        what = f"{name} holds {holds or 'text'}, and this objective trains on {wanted or 'text'}"
        raise UserError(what, fix=_objective_or(holds, for_decoders, own))
    return str(builtin_folder(name, rows)) if holds else name


def _objective_or(holds: str, for_decoders: bool, other: str) -> str:
    objective = PREPARED[holds].objective if for_decoders and holds in PREPARED else ""
    return f"--objective {objective}, or {other}" if objective else other
