"""Whether data has the tokens of a run's or a base model's tokenizer. Tokenizers are compared word by word: files of
one tokenizer differ in bytes, and an objective adds words. Data without a tokenizer cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.data.format import TokenizerId
from trainwright.train.data.loader import Samples
from trainwright.train.models.hf_tokenizer import FILE, FOLDER, data_table, first_difference
from trainwright.train.models.saved_weights import tokenizer_folder

OTHER = "the data has tokens of another tokenizer than"


def difference_from(folder: Path | None, samples: Samples) -> str:
    """Where the tokenizer of these samples differs from the one in a folder; empty where it does not, or is not
    known."""
    added = samples.added_tokens()
    table = data_table(*samples.tokenizer(), added)
    if table is None or folder is None or not (folder / FILE).is_file():
        return ""
    return first_difference(table, json.loads((folder / FILE).read_text(encoding="utf-8")), added.names)


def require_same_tokenizer(run: Path, saved: dict[str, Any] | None, samples: Samples, data: str) -> None:
    """Refuse to continue a run with tokens that mean other words. `saved` is the tokenizer named in the checkpoint, for
    a run folder without one."""
    folder = run / FOLDER
    kept = (folder / FILE).is_file()
    identity = samples.tokenizer_id
    if kept:
        difference = difference_from(folder, samples)
    else:
        difference = _other_identity(identity, saved) if identity and saved else ""
    if difference:
        tokenizer = f"data prepared with --tokenizer {folder}" if kept else "data of the run's own tokenizer"
        fix = f"{tokenizer}, or another --folder with --base {run}"
        raise UserError(f"{OTHER} the run: {difference}", where=data, fix=fix)


def _other_identity(identity: TokenizerId, saved: dict[str, Any]) -> str:
    before = TokenizerId(**saved)
    return "" if identity.is_same(before) else f"{identity.described}, and the run has {before.described}"


def base_remarks(base: str, samples: Samples) -> list[str]:
    """A line for the log where the weights of --base know other words by these tokens."""
    try:
        difference = difference_from(tokenizer_folder(base), samples)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"note: the tokenizer of --base {base} cannot be read ({error})"]
    return [f"note: {OTHER} --base {base}: {difference}"] if difference else []
