"""Which texts must be quoted in YAML to stay texts: every number some reader knows, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.yaml_numbers import looks_like_number


@pytest.mark.parametrize(
    "text", ["1e-5", "3E8", "1e5", "-1.5e+3", "1.", ".5", "+12", "0o17", "0x1F", "0b11", "1_000", "12", "1_0.5"]
)
def test_a_number_of_any_reader_is_quoted(text: str) -> None:
    assert looks_like_number(text)


@pytest.mark.parametrize(
    "text", ["0.0.0.0", "2.13.0", "10.0.0.1", ".", "..", "_", "-", "+", "e5", "1e", "0x", "eth0", ""]
)
def test_an_address_or_a_version_is_written_as_it_is(text: str) -> None:
    assert not looks_like_number(text)


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()))
def test_whatever_python_writes_for_a_number_is_one(number: float) -> None:
    assert looks_like_number(repr(number))
    assert looks_like_number(f"{number:.3e}")
