"""The reference of the verbs: usage and options of each, read from the command line's own definitions."""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Iterable
from unittest import mock

import click
from recordings import NAMES as RECORDED

from trainwright.cli.main import VERBS, LazyVerbs

# Words of the trainer that have a parser of their own, which `trainwright train --help` does not list.
MORE_PARSERS = {"train": ("export", "import")}
# Sub-commands that hand further options to a module of the node side, which adds them to an argparse parser.
NODE_SIDE = {
    "bench collectives": "trainwright.bench.collectives",
    "bench device": "trainwright.bench.device",
    "bench storage": "trainwright.train.data.storage_bench",
    "bench loader": "trainwright.train.data.loader_bench",
    "bench checkpoint": "trainwright.train.checkpoint.bench",
}
NUMBERS = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT": "X", "FLOAT RANGE": "X"}  # what click calls them
INDEX = """# Every verb

Written from the command line by `make docs`; `trainwright VERB --help` prints the same. Results go to stdout, progress
and messages to stderr. Exit status: 0 success, 1 a negative answer (findings, a failed verdict, a cluster that cannot
be reached), 2 wrong usage.

| verb | what it does |
| --- | --- |
"""
Row = tuple[str, str, str]  # option or argument, default, what it does


def verb_pages() -> dict[str, str]:
    """File name -> page: one per verb, and the index."""
    context = click.Context(LazyVerbs("trainwright"), info_name="trainwright")
    pages = {f"{verb}.md": _page(verb, context) for verb in VERBS}
    pages["index.md"] = INDEX + "".join(f"| [`{verb}`]({verb}.md) | {_cell(text)} |\n" for verb, text in VERBS.items())
    return pages


def _page(verb: str, parent: click.Context) -> str:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, verb)
    assert command is not None
    parts = [f"# {verb}", VERBS[verb]]
    if verb in RECORDED:
        parts.append(f"![What `trainwright {verb}` prints](../../images/terminal/{verb}.svg)")
    if command.context_settings.get("ignore_unknown_options"):  # the node side parses these words with argparse
        parts += _parser_sections(_parser_of(command, []))
        for word in MORE_PARSERS.get(verb, ()):
            parts += [f"## {verb} {word}", *_parser_sections(_parser_of(command, [word]))]
        return _joined(parts)
    context = click.Context(command, parent=parent, info_name=verb)
    parts += _command_sections(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            parts += [f"## {verb} {name}", *_command_sections(inner, click.Context(inner, context, info_name=name))]
            parts += _node_options(f"{verb} {name}") if inner.context_settings.get("ignore_unknown_options") else []
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """The parts of a page; what is empty, or repeats the line under the title, is left out."""
    title, summary, *rest = parts
    kept = [title, summary, *(part for part in rest if part and part.rstrip(".") != summary.rstrip("."))]
    return "\n\n".join(kept) + "\n"


def _command_sections(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    options = (_option_row(each, context) for each in command.params if isinstance(each, click.Option))
    return [f"```text\n{usage}\n```", text, *_table(options)]


def _node_options(name: str) -> list[str]:
    """The options that the node side adds to a sub-command."""
    parser = argparse.ArgumentParser(prog=name)
    importlib.import_module(NODE_SIDE[name]).add_arguments(parser)
    return ["Options of the measurement:", *_parser_sections(parser)]


def _option_row(option: click.Option, context: click.Context) -> Row:
    names = ", ".join((*option.opts, *option.secondary_opts))
    metavar = option.make_metavar(context)
    value = "" if option.is_flag or option.count else f" {NUMBERS.get(metavar, metavar)}"
    many = " May be given several times." if option.multiple else ""
    return _cell(f"`{names}{value}`"), _default(option.default), _cell(option.help or "") + many


def _parser_of(command: click.Command, words: list[str]) -> argparse.ArgumentParser:
    """The argparse parser behind a verb: ask it for help, and keep the parser instead of the text."""
    asked: list[argparse.ArgumentParser] = []
    keep = mock.patch.object(argparse.ArgumentParser, "print_help", lambda parser, file=None: asked.append(parser))
    with keep, contextlib.suppress(SystemExit):
        command.main([*words, "--help"], standalone_mode=False)
    return asked[0]


def _parser_sections(parser: argparse.ArgumentParser) -> list[str]:
    subparsers = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    skipped = (argparse._SubParsersAction, argparse._HelpAction)
    rows: dict[str, list[Row]] = {}
    for group in parser._action_groups:
        title = "" if group in (parser._positionals, parser._optionals) else group.title or ""
        shown = [each for each in group._group_actions if not isinstance(each, skipped)]
        rows.setdefault(title, []).extend(_action_row(each) for each in shown if each.help != argparse.SUPPRESS)
    sections = [_cell(parser.description or "")]
    for title, table in rows.items():
        sections += [f"**{title}**"] if title and table else []
        sections += _table(table)
    sections += [f"```text\n{parser.epilog.strip()}\n```"] if parser.epilog else []
    for action in subparsers:
        texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, inner in action.choices.items():
            title = inner.prog.removeprefix("trainwright ")
            sections += [f"## {title}", _sentence(texts.get(name, "")), *_parser_sections(inner)]
    return sections


def _action_row(action: argparse.Action) -> Row:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = choices or (action.metavar if isinstance(action.metavar, str) else action.dest.upper())
    if action.option_strings:
        takes_value = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
        value = ", ".join(action.option_strings) + (f" {value}" if takes_value else "")
    text = (action.help or "").replace("%%", "%").partition(" (default: %(default)")[0]
    return _cell(f"`{value}`"), _default(action.default), _cell(text)


def _table(rows: Iterable[Row]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    header = ["| argument or option | default | what it does |", "| --- | --- | --- |"]
    return ["\n".join([*header, *lines])] if lines else []


def _default(value: object) -> str:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"`{value}`" if plain and value not in ("", argparse.SUPPRESS) else ""


def _sentence(text: str) -> str:
    text = _cell(text)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
