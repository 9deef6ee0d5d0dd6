"""What is paid for: capacity blocks have fixed lengths, start-up counts, storage is part of the bill."""

from __future__ import annotations

import pytest

from trainwright.predict.cost import billed_days, training_days, training_usd


@pytest.mark.parametrize(
    ("days", "billed"), [(0.2, 1), (1.0, 1), (13.1, 14), (14.5, 21), (22, 28), (182, 182), (183, 183), (200, 203)]
)
def test_a_block_is_paid_in_whole_days_and_then_in_whole_weeks(days, billed):
    assert billed_days(days, "capacity-block") == billed
    assert billed_days(days, "on-demand") == days


def test_start_up_is_time_and_money():
    assert training_days(0.0, 1.0) * 86_400 == 900
    assert training_usd(4.0, 0.5, "on-demand", 0.0) == 48.0
    assert training_usd(4.0, 0.5, "capacity-block", 30.4) == pytest.approx(96.5)
