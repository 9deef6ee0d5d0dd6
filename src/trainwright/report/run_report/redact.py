"""Keeps secrets out of a report, which people send around: values of variables whose name says that they are secret,
and words that have the form of a known kind of key."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_NAME = re.compile(
    r"(?i)(secret|token|passw|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential|auth(?!or))"
)
_PUBLIC = re.compile(r"(?i)(tokenizers?_|_tokens$|^tokens|max_tokens|tokens_per)")
_KEYS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}|\bxox[abpr]-[A-Za-z0-9-]{10,}|\bey[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{10,}\.[\w-]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_LINE = re.compile(r"^(?P<head>\s*(?:- )?[\"']?(?P<name>[\w.-]+)[\"']?\s*[:=]\s*)(?P<value>\S.*)$")
_ELEMENT = re.compile(r"^\s*-\s+[\"']?--(?P<name>[\w-]+)[\"']?\s*$")
_PAIR = re.compile(r"(?P<head>[\"']?(?P<name>[\w.-]+)[\"']?\s*[:=]\s*)(?P<value>[^\s,{}\[\]]+)")
_OPTION = re.compile(r"(?P<head>--(?P<name>[\w-]+)[= ])(?P<value>\S+)")


def is_secret(name: str) -> bool:
    return bool(_NAME.search(name)) and not _PUBLIC.search(name)


def value(name: str, text: str) -> str:
    return HIDDEN if text and is_secret(name) else lines(text)


def text_without_keys(text: str) -> str:
    return _KEYS.sub(HIDDEN, text)


def lines(text: str) -> str:
    """A spec or a script line by line: the value after a secret's name is hidden, also where it is the next element."""
    shown, before = [], ""
    for line in text.splitlines():
        named = _ELEMENT.match(before)
        hide = named is not None and is_secret(named["name"]) and not _ELEMENT.match(line)
        shown.append(re.sub(r"(-\s+).*", rf"\1{HIDDEN}", line) if hide else _line(line))
        before = line
    return "\n".join(shown)


def _line(line: str) -> str:
    match = _LINE.match(line)
    if match is not None and is_secret(match["name"]) and match["value"].strip() not in ("{", "[", "|", ">"):
        return f"{match['head']}{HIDDEN}"
    for pattern in (_OPTION, _PAIR):
        line = pattern.sub(lambda pair: f"{pair['head']}{HIDDEN}" if is_secret(pair["name"]) else pair[0], line)
    return text_without_keys(line)
