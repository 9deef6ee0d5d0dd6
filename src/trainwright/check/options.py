"""The options of launchers and trainers: from the catalog's table, or from the `add_argument` calls of a script
that lies beside its launcher."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.catalog.framework_flags import options_of
from trainwright.catalog.tables import read_table
from trainwright.check.model import Command, Value
from trainwright.errors import nearest

_TABLE = Path(__file__).parent / "data" / "options.csv"
_WITHOUT_VALUE = ("flag", "switch")
_LARGEST_SCRIPT = 2**20
_ADDED = re.compile(r"\.add_argument\(\s*((?:[\"']-{1,2}[\w.-]+[\"']\s*,?\s*)+)(?P<rest>[^)]*)")
_NAME = re.compile(r"[\"'](-{1,2}[\w.-]+)[\"']")
# A script whose parser also takes options from elsewhere, or ignores what it does not know.
_OPEN_PARSER = re.compile(
    r"parse_known_args|parents\s*=|HfArgumentParser|TrlParser|add_config_arguments|add_argparse_args|add_arguments\("
    r"|fromfile_prefix_chars|jsonargparse|add_subparsers|\bargs?_parser\b|import.*\bget_parser\b"
)


@dataclass(frozen=True, slots=True)
class Options:
    """Option names of one program; True where the option takes a value."""

    program: str
    takes_value: dict[str, bool]
    abbreviates: bool = False  # argparse, unless it is told not to

    def has(self, name: str, *, exact: bool = False) -> bool:
        """Whether the program accepts an option; argparse also accepts an unambiguous beginning."""
        known = self.takes_value
        if name in known or (not exact and any(option.startswith(name) for option in known)):
            return True
        if exact and self.abbreviates and sum(option.startswith(name) for option in known) == 1:
            return True
        other = "--" + name[2:].replace("-", "_"), "--" + name[2:].replace("_", "-")
        return not exact and any(one in known for one in other)

    def nearest(self, name: str, cutoff: float = 0.8) -> str:
        """The option that a misspelled one most resembles, or an empty string."""
        return nearest(name, self.takes_value, cutoff)


@cache
def table() -> dict[str, Options]:
    """The programs by name: the catalog's options, and the short forms and twins that it lacks."""
    programs = {}
    for row in read_table(_TABLE).records():
        options = {name: option.kind not in _WITHOUT_VALUE for name, option in options_of(row["framework"]).items()}
        options |= {name.rstrip("!"): not name.endswith("!") for name in row["options"].split()}
        versions = row["versions"]  # `1.15.0 HEAD`, or `torch 2.15.0` where another package has the program
        title = f"of {versions}" if versions[0].isalpha() else versions.split()[0]
        programs[row["program"]] = Options(f"{row['program']} {title}", options)
    return programs


@cache
def megatron() -> Options:
    """Megatron-LM and its DeepSpeed fork share script names, so an option of either is accepted."""
    both = table()["Megatron-LM"].takes_value | table()["Megatron-DeepSpeed"].takes_value
    return Options("Megatron-LM", both)


def options_of_script(path: Path) -> Options | None:
    """The options that a script's own parser has; None when they are not all in that file."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_SCRIPT:
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if not re.search(r"(?<!Flexible)ArgumentParser\(", text) or ".parse_args(" not in text or _OPEN_PARSER.search(text):
        return None
    names = {"-h": False, "--help": False}
    for match in _ADDED.finditer(text):
        takes_value = re.search(r"action\s*=\s*[\"']store_(true|false)", match["rest"]) is None
        names |= dict.fromkeys(_NAME.findall(match[1]), takes_value)
        if "BooleanOptionalAction" in match["rest"]:
            names |= {f"--no-{name[2:]}": False for name in _NAME.findall(match[1])}
    return Options(path.name, names, not re.search(r"allow_abbrev\s*=\s*False", text))


def split(
    command: Command, own: Options, start: int = 1
) -> tuple[list[Value[str]], Value[str] | None, list[Value[str]]]:
    """A launcher's own options, the script it starts, and the script's words."""
    words, at = command.words, start
    options: list[Value[str]] = []
    while at < len(words):
        word = words[at]
        if not word.value.startswith("-"):
            return options, word, words[at + 1 :]
        if not word.known and not word.value.startswith("--"):
            return options, None, []
        name, equals, _ = word.value.partition("=")
        options.append(word)
        takes = own.takes_value.get(name, own.takes_value.get("--" + name[2:].replace("_", "-"), not equals))
        at += 2 if takes and not equals else 1
    return options, None, []
