"""Hjson that is not closed is refused in time that grows with its length, not with its square."""

from __future__ import annotations

import contextlib

import pytest
from timing import cpu_seconds

from trainwright.check.readers.hjson_source import parse_hjson
from trainwright.spec.source import SourceError

HEAD = '{"zero_optimization": {"stage": 2}, '


def seconds(text: str) -> float:
    def work() -> None:
        with contextlib.suppress(SourceError):
            parse_hjson(text, "ds.json")

    return cpu_seconds(work)


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (f"{HEAD}]", "/* "),  # comments
        ("{", "a: /* x\n"),  # in place of values
        (f"{HEAD}]", '"\\'),  # texts
        (f"{HEAD}]", "# "),
        (f"{HEAD}]", ", \n"),
        (f"{HEAD}]", "''' "),
    ],
)
def test_the_time_for_what_is_not_closed_is_linear(head: str, part: str) -> None:
    short, long = (min(seconds(head + part * count) for _ in range(3)) for count in (2_000, 16_000))
    assert long < 24 * max(short, 0.001)  # eight times the length; its square is 64


@pytest.mark.parametrize("text", ['{"a": 1} /* and so on', '{"a": 1, /* and so on\n"b": 2}', '{"a": 1 /* x }'])
def test_a_comment_that_is_not_closed_is_refused(text: str) -> None:
    """The package `hjson` fails on each with an IndexError."""
    with pytest.raises(SourceError):
        parse_hjson(text, "ds.json")
