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
from trainwright.check.programs.argparse_options import argparse_options
from trainwright.errors import nearest

_TABLE = Path(__file__).parents[1] / "data/options.csv"
_WITHOUT_VALUE = ("flag", "switch")
# Tried with DeepSpeed 0.19: `unrecognized arguments: --master-port`. torchrun 2.13 and accelerate 1.15 have both
# spellings of every option.
_ONE_SPELLING = ("deepspeed",)


@dataclass(frozen=True, slots=True)
class Options:
    """Option names of one program; True where the option takes a value."""

    program: str
    takes_value: dict[str, bool]
    abbreviates: bool = False  # argparse, unless it is told not to
    twins: bool = True  # takes `--a-b` for `--a_b`, and the other way round

    def has(self, name: str, *, exact: bool = False) -> bool:
        """Whether the program accepts an option; argparse also accepts an unambiguous beginning."""
        known = self.takes_value
        if name in known or (not exact and any(option.startswith(name) for option in known)):
            return True
        if exact and self.abbreviates and sum(option.startswith(name) for option in known) == 1:
            return True
        other = "--" + name[2:].replace("-", "_"), "--" + name[2:].replace("_", "-")
        return not exact and self.twins and any(one in known for one in other)

    def takes(self, name: str) -> bool | None:
        """Whether an option takes a value; None where the program does not have it."""
        return self.takes_value.get(name, self.takes_value.get("--" + name[2:].replace("-", "_")))

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
        programs[row["program"]] = Options(
            f"{row['program']} {title}", options, twins=row["program"] not in _ONE_SPELLING
        )
    return programs


@cache
def megatron() -> Options:
    """Megatron-LM and its DeepSpeed fork share script names, so an option of either is accepted."""
    both = table()["Megatron-LM"].takes_value | table()["Megatron-DeepSpeed"].takes_value
    return Options("Megatron-LM", both)


def options_of_script(name: str, text: str) -> Options | None:
    """The options that a script's own parser has; None when they are not all in that file."""
    if "ArgumentParser(" not in text or ".parse_args(" not in text:
        return None
    read = argparse_options(text)
    return Options(name.rpartition("/")[2], *read) if read is not None else None


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
        options.append(word)
        at += 1 + _values(word.value, words[at + 1 :], own)
    return options, None, []


def _values(option: str, following: list[Value[str]], own: Options) -> int:
    """How many words are meant as the value of an option: none where a script or an option follows; of an option that
    the program does not have, all words up to the next option or the script."""
    if "=" in option or not following or is_script_or_option(following[0]):
        return 0
    takes = own.takes(option)
    if takes is None:
        script_follows = any(word.value.endswith(".py") for word in following)
        return next(n for n, word in enumerate(following) if is_script_or_option(word)) if script_follows else 1
    return 1 if takes or following[0].value in SWITCHED else 0


def is_script_or_option(word: Value[str]) -> bool:
    """Whether a word is no value: argparse takes what begins with a hyphen for an option, but not a number."""
    return word.value.endswith(".py") or re.match(r"--?[A-Za-z][\w-]*(=|$)", word.value) is not None


# What people write after an option that takes no value.
SWITCHED = ("true", "True", "TRUE", "false", "False", "FALSE", "yes", "no", "0", "1")
