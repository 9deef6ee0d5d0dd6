"""The one error a user can cause: what is wrong, where, and how to fix it. Printed without a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """Something the user wrote or asked for cannot be done. Every verb prints it in three parts and exits with its
    status: 2, or 1 in a subclass where the request was valid and the answer is negative."""

    status = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{where}{self.what}{fix}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The hint `did you mean 'x'?` for the nearest known word, or an empty string."""
    near = nearest(word.lower(), {k.lower(): k for k in known})
    if not near:
        return ""
    original = next(k for k in known if k.lower() == near)
    return f"did you mean {original!r}?"


def listed(names: Iterable[str], most: int) -> str:
    """For a message: the first names, and how many more there are."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known word that resembles this one most, or an empty string: the first of `difflib.get_close_matches`, which
    takes several times as long because it measures every word in full."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher()
    matcher.set_seq2(word)
    best = (cutoff, "")
    for other in known:
        letters = len(word) + len(other)
        if letters and 2 * min(len(word), len(other)) / letters < best[0]:
            continue  # words of these lengths cannot be nearer
        matcher.set_seq1(other)
        if matcher.quick_ratio() >= best[0]:
            best = max(best, (matcher.ratio(), other))
    return best[1]
