"""Keeps secrets out of a report, which people send around: values of variables whose name says that they are secret,
and words that have the form of a known kind of key."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_NAME = re.compile(r"(?i)(secret|token|passw|passphrase|api_?key|access_?key|private_?key|credential|auth)")
_PUBLIC = re.compile(r"(?i)(tokenizers?_|_tokens$|^tokens|max_tokens|tokens_per)")
_KEYS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}|\bxox[abpr]-[A-Za-z0-9-]{10,}|\bey[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{10,}\.[\w-]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_LINE = re.compile(r"^(?P<head>\s*(?:- )?[\"']?(?P<name>[\w.-]+)[\"']?\s*[:=]\s*)(?P<value>\S.*)$")
_OPTION = re.compile(r"(?P<head>--(?P<name>[\w-]+)[= ])(?P<value>\S+)")


def is_secret(name: str) -> bool:
    return bool(_NAME.search(name)) and not _PUBLIC.search(name)


def value(name: str, text: str) -> str:
    return HIDDEN if text and is_secret(name) else text_without_keys(text)


def text_without_keys(text: str) -> str:
    return _KEYS.sub(HIDDEN, text)


def lines(text: str) -> str:
    """A spec or a script line by line: the value after a secret's name is hidden."""
    return "\n".join(_line(line) for line in text.splitlines())


def _line(line: str) -> str:
    match = _LINE.match(line)
    if match is not None and is_secret(match["name"]) and match["value"].strip() not in ("{", "[", "|", ">"):
        return f"{match['head']}{HIDDEN}"
    hidden = _OPTION.sub(lambda m: f"{m['head']}{HIDDEN}" if is_secret(m["name"]) else m[0], line)
    return text_without_keys(hidden)
