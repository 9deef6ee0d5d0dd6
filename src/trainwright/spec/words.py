"""Texts of a spec that reach scripts, command lines and file names on the nodes: what could end a line or a quote is
refused where it is read."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from trainwright.shell_templates import in_control

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names of variables that say they hold a secret; TOKENIZERS_PARALLELISM and MAX_TOKENS do not.
SECRET_NAME = re.compile(r"(?:.*_)?(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIALS?)$", re.IGNORECASE)
_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._-]+)*/?")
_PUBLIC_KEY = re.compile(
    r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d+|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]{40,}={0,2}(?: [ -~]*)?"
)
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is no name: letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return value


def _word(value: str) -> str:
    if any(in_control(letter) for letter in value):
        raise ValueError(f"{value!r} holds a line break or another control character")
    return value


def _setting_name(value: str) -> str:
    if not _SETTING.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a setting of slurm.conf: letters and digits")
    return value


def ssh_destination(value: str) -> str:
    """A host that ssh is called with. A dash at its start would be an option of ssh, and some of those run commands."""
    if not value or value.startswith("-") or "@-" in value or any(c.isspace() or not c.isprintable() for c in value):
        raise ValueError(f"{value!r} is not an ssh destination: write it like user@head, without spaces")
    return value


def _argument(value: Any) -> Any:
    """A number among the arguments (`[--lr, 1e-4]`) is a word of the command line."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _folder(value: str) -> str:
    if not _FOLDER.fullmatch(value) or "/../" in f"{value}/":
        raise ValueError(f"{value!r} is no folder: a full path of letters, digits, dots, dashes and underscores")
    return value


def _s3_address(value: str) -> str:
    if not _S3.fullmatch(value):
        raise ValueError(f"{value!r} is no place in S3: write it like s3://bucket/prefix")
    return value.rstrip("/")


def _public_key(value: str) -> str:
    if not _PUBLIC_KEY.fullmatch(value):
        raise ValueError("this is no public ssh key: copy the one line of a .pub file, such as ssh-ed25519 AAAA… name")
    return value


Name = Annotated[str, AfterValidator(_name)]
Argument = Annotated[str, BeforeValidator(_argument), AfterValidator(_word)]
Word = Annotated[str, AfterValidator(_word)]
SettingName = Annotated[str, AfterValidator(_setting_name)]
Host = Annotated[str, AfterValidator(ssh_destination)]
S3Address = Annotated[str, AfterValidator(_s3_address)]
Folder = Annotated[str, AfterValidator(_folder)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
