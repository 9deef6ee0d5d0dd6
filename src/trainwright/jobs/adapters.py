"""Whether a job trains LoRA adapters instead of the whole model: by the options of our trainer, or by those that a
framework's data file names. Memory and time depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainwright.recipes.model import Foreign, Recipe


@dataclass(frozen=True, slots=True)
class Adapters:
    """Rank 0: all weights are trained. `base_bits` are those of a frozen weight: 4 for QLoRA."""

    rank: int = 0
    base_bits: int = 16


NO_ADAPTERS = Adapters()


def framework_adapters(recipe: Recipe | None, args: Sequence[str]) -> Adapters:
    """The adapters of a framework's job: what its recipe sets, and the job's own arguments over that."""
    trainer = recipe.trainer if recipe is not None else None
    known = trainer.known if isinstance(trainer, Foreign) else None
    if not isinstance(trainer, Foreign) or known is None or known.adapters is None:
        return NO_ADAPTERS
    settings = trainer.over(known)
    written = {**settings.file, **settings.options, **given_options(args)}
    word = str(written.get(known.adapters.rank) or 0)
    rank = known.adapters.words.get(word) or (int(word) if word.isdigit() else 0)
    bits = str(written.get(known.adapters.bits or "") or 16)
    return Adapters(rank, int(bits) if bits.isdigit() else 16)


def given_options(args: Sequence[str]) -> dict[str, str]:
    """The options among a job's arguments: `--name value`, `--name=value` and `key=value`."""
    joined = {name: value for name, equals, value in (word.partition("=") for word in args) if equals}
    apart = {name: value for name, value in pairwise(args) if name.startswith("--")}
    return {**apart, **joined}
