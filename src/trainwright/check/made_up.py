"""Whether a text that has the form of a secret is one. Examples and templates hold many that are nobody's: words,
paths, one character again and again, the alphabet."""

from __future__ import annotations

import re
from itertools import pairwise

_PREFIX = re.compile(r"(hf|gh[a-z]|github_pat)_|nvapi-|AKIA|ASIA")
_WORDS = re.compile(
    r"example|your|replace|change.?me|dummy|fake|sample|placeholder|insert|paste|todo|redact|goes.?here|api.?key|"
    r"secret|token|qwerty|asdf",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[a-z]*|[A-Z]*|[A-Z]?[a-z]+|v?\d{1,4}")  # a part of a name or path
_SAME = re.compile(r"([xX*.0])\1{7}")
_FEW = 5  # different characters
_RUN = 7  # characters that follow each other, as in abcdefg
_LONGEST_PART = 64  # characters that are repeated; a value of many thousand is compared as often, not with every half
_SIGNED = re.compile(r"(X-Amz-Credential|AWSAccessKeyId)(=|%3D)$", re.IGNORECASE)


def is_made_up(secret: str) -> bool:
    """Whether nobody can have this secret."""
    body = _PREFIX.sub("", secret, count=1)
    lowered = body.lower()
    return (
        len(set(lowered)) <= _FEW
        or _WORDS.search(body) is not None
        or _SAME.search(body) is not None
        or _longest_run(lowered) >= _RUN
        or _repeats(body)
        or _is_a_name(body)
    )


def is_of_an_address(text: str, start: int) -> bool:
    """Whether the key id at a place belongs to a signed address, which says who signed it and opens nothing else."""
    return _SIGNED.search(text[max(0, start - 24) : start]) is not None


def _longest_run(text: str) -> int:
    longest = run = 1
    for before, char in pairwise(text):
        run = run + 1 if ord(char) == ord(before) + 1 else 1
        longest = max(longest, run)
    return longest


def _repeats(text: str) -> bool:
    """`deadbeefdeadbeef`, also with a part of it at the end."""
    return any(text.startswith(text[size:]) for size in range(1, min(len(text) // 2, _LONGEST_PART) + 1))


def _is_a_name(text: str) -> bool:
    """`/home/me/token`, `projects/a/secrets/hf/versions/1`, `my-key-of-the-lab`: words between separators."""
    parts = re.split(r"[-_/.]", text)
    return len(parts) > 1 and all(_PLAIN.fullmatch(part) for part in parts)
