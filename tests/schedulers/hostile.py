"""Strings that try to leave their place: a line, a quote, an option, a folder, a template, a document."""

from __future__ import annotations

import random

MARK = "PWNED"
PIECES = (
    "\n", "\r\n", ";", "&&", "|", f"$(touch {MARK})", f"`touch {MARK}`", f"${{IFS}}touch${{IFS}}{MARK}", "'", '"', "\\",
    "#", " ", "../", "/etc", "--", "-x", f"touch {MARK}", f">{MARK}", "\n#SBATCH --nodes=99\n", f"\ntouch {MARK}\n",
    "*", "~", "!", "%", "\0", "\u2028", "\x85", "\x1b[2J", "\U0001f600", "{{ 7*7 }}", "{% raw %}", "a", "1", "$HOME",
    "EOF", "\n- evil: true\n", ": {", "}", ",", "=", "%j", "$'", "-o ProxyCommand=touch " + MARK, "\t", "é",
)  # fmt: skip


def strings(count: int, seed: int = 17) -> list[str]:
    """The same strings every time, without repetition."""
    chance = random.Random(seed)
    made: dict[str, None] = dict.fromkeys(PIECES)
    while len(made) < count:
        made["".join(chance.choices(PIECES, k=chance.randint(1, 6)))] = None
    return list(made)[:count]
