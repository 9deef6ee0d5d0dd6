"""The options that a recipe gives to a framework, compared with those that the framework has: by its table in the
catalog, or by the source of the program of ours that runs it. Also for the keys of its configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.catalog.framework_flags import OPEN, Option, check_options, find_option, framework_of, options_of
from trainwright.catalog.framework_flags import value_problem as kind_problem
from trainwright.check.finding import Level
from trainwright.check.registry import Problem, problem
from trainwright.errors import nearest
from trainwright.spec.source import Node, SourceError, parse, read_text

if TYPE_CHECKING:  # pydantic comes with it
    from trainwright.recipes.model import Foreign, Recipe


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of one program. An open one takes more than the table has."""

    title: str
    options: Mapping[str, Option]
    framework: str = ""  # its name in the catalog, whose rules on spelling count
    prefix: str = ""  # of the table's names, before a key of a configuration file

    @property
    def is_open(self) -> bool:
        return self.framework in OPEN

    def find(self, key: str) -> Option | None:
        name = f"{self.prefix}{key}"
        return find_option(self.framework, name) if self.framework else self.options.get(name)

    def is_below(self, key: str) -> bool:
        """Whether a key lies below a mapping of the table, whose keys it does not list, or holds some of its keys."""
        name = f"{self.prefix}{key}"
        parents = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
        return any(one in self.options for one in parents) or any(one.startswith(f"{name}.") for one in self.options)


def recipe_problems(path: Path, recipe: Recipe) -> Iterator[Problem]:
    """What is wrong with the options of a recipe's file, each at its line there."""
    trainer = recipe.trainer
    if trainer == "trainwright":
        return
    root = _document(path)
    written = root.get("trainer") if root is not None else None
    if written is None:
        return
    for one in _problems(trainer, written):
        yield replace(one, span=replace(one.span, file=str(path)))


def _document(path: Path) -> Node | None:
    try:
        documents = parse(read_text(path), str(path))
    except SourceError:
        return None  # reported where the recipe is loaded
    return documents[0] if len(documents) == 1 else None


def _problems(trainer: Foreign, written: Node) -> Iterator[Problem]:
    if trainer.command:
        yield from _command(trainer.command, written)
        return
    for part in (written, written.get("debug")):
        for section, table in (("options", command_table(trainer)), ("file", file_table(trainer))):
            keys = part.get(section) if part is not None else None
            if table is None or keys is None:
                continue
            for key, node in keys.items():
                wrong = option_problem(table, key, node.plain())
                if wrong is not None:
                    what, fix, level = wrong
                    yield problem(keys.key_span(key), what, fix, level=level)


def _command(words: tuple[str, ...], written: Node) -> Iterator[Problem]:
    """A command in words: those of a framework that is known by its script or module."""
    framework, start = framework_of(words)
    for mistake in check_options(framework, words[start:]):
        level: Level = "error" if mistake.fix.startswith("did you mean") else "warning"
        yield problem(written.span_at(("command", start + mistake.index)), mistake.what, mistake.fix, level=level)


def command_table(trainer: Foreign) -> OptionTable | None:
    """The options of the command line; None where nothing is known of them."""
    from trainwright.recipes.entry_options import entry_options

    known = trainer.known
    assert known is not None
    if known.flags and options_of(known.flags):
        return OptionTable(known.title, options_of(known.flags), known.flags)
    ours = entry_options(trainer)
    return OptionTable(f"our program for {known.title}", ours) if ours else None


def file_table(trainer: Foreign) -> OptionTable | None:
    """The keys of the configuration file; None where nothing is known of them."""
    known = trainer.known
    assert known is not None
    name = known.config_flags or known.flags or ""
    options = options_of(name)
    prefix = "--" if known.config and known.config.endswith(".toml") else ""
    named = any(option.startswith("--") == bool(prefix) for option in options)
    return OptionTable(f"the configuration of {known.title}", options, name, prefix) if options and named else None


def option_problem(table: OptionTable, key: str, value: Any) -> tuple[str, str, Level] | None:
    """(what, fix, level) of one option and its value; None where both are right."""
    name = key.rstrip("=").lstrip("+")
    option = table.find(name)
    if option is None:
        return None if table.is_below(name) or key.startswith("+") else _unknown(table, name)
    if value is None or isinstance(value, dict) or (isinstance(value, str) and "{" in value):
        return None  # left out, a mapping of its own, or filled in with a value of ours
    switch = option.kind in ("flag", "switch")
    if switch and not isinstance(value, bool) and not key.endswith("=") and key.startswith("--"):
        return f"{name} takes no value, not {value!r}", f"write `{key}: true`", "error"
    if switch or (isinstance(value, bool) and option.kind not in ("int", "float")):
        return None
    for one in value if isinstance(value, list) else [value]:
        wrong = kind_problem(option, 0, name, None if one is True else str(one), joined=True)
        if wrong is not None:
            return wrong.what.replace(option.name, name), wrong.fix, "error"
    return None


def _unknown(table: OptionTable, name: str) -> tuple[str, str, Level]:
    names = [one.removeprefix(table.prefix) for one in table.options]
    near = nearest(name, names, 0.85 if table.is_open else 0.6)
    what = f"{table.title} has no option {name!r}"
    if near:
        return what, f"did you mean {near!r}?", "error"
    if table.is_open:
        return f"{name!r} is none of the options of {table.title} that we know", "check its spelling", "info"
    return what, "leave it out, or write the option that is meant", "error"
