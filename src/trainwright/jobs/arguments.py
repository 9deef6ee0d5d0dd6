"""The words that a user adds for our trainer (`args:`, or after `--`), read by the trainer's own parser: they win over
spec and recipe, so every verb has to count with them, and a wrong one is found before the job is queued."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from trainwright.errors import UserError, did_you_mean
from trainwright.train.config import TrainConfig, parse_interval, parser
from trainwright.train.parallel.plan import parse_axes


@dataclass(frozen=True, slots=True)
class TrainerArguments:
    """The trainer's options by field, and what its parser objects to."""

    values: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    fix: str = ""


HELP = ("-h", "--he", "--hel", "--help")  # argparse takes unambiguous beginnings


class _ParserError(Exception):
    """What argparse would print before it ends the process."""


def trainer_arguments(words: Sequence[str]) -> TrainerArguments:
    """What the words say to our trainer."""
    if not words:
        return TrainerArguments()
    reader = parser()
    reader.error = _refuse  # type: ignore[method-assign]
    if any(word in HELP for word in words):
        return TrainerArguments(problem="the trainer would print its help and end", fix="remove --help")
    try:
        values, unknown = reader.parse_known_args(list(words))
    except _ParserError as error:
        return TrainerArguments(problem=str(error), fix="`trainwright train --help` lists the options")
    strange = next((word for word in unknown if word.startswith("-")), unknown[0] if unknown else None)
    if strange is not None:
        hint = did_you_mean(strange.partition("=")[0], _options(reader))
        return TrainerArguments(
            {}, f"our trainer has no option {strange!r}", hint or "`trainwright train --help` lists them"
        )
    return _validated(vars(values))


def _validated(values: dict[str, Any]) -> TrainerArguments:
    """The options as the trainer itself would take them."""
    if values.pop("config", None) is not None:
        what = "--config hides its values from every verb but the trainer"
        return TrainerArguments(problem=what, fix="state the options in the job, or after `--`")
    try:
        given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        config = TrainConfig(**given)
        parse_interval(config.checkpoint_every)
        parse_axes(config.parallel)
    except UserError as error:
        return TrainerArguments(problem=error.what, fix=error.fix)
    return TrainerArguments(values)


def _refuse(message: str) -> NoReturn:
    raise _ParserError(message)


def _options(reader: argparse.ArgumentParser) -> list[str]:
    return [option for action in reader._actions for option in action.option_strings]
