"""The environment of a job: computed for the instance type, each line with its reason."""

from __future__ import annotations

from trainwright.catalog.instances import instance
from trainwright.jobs.environment import explain_environment, job_environment


def test_efa_lines_only_where_there_is_efa() -> None:
    with_efa = {one.name for one in job_environment(instance("p5.48xlarge"), {})}
    without = {one.name for one in job_environment(instance("g5.xlarge"), {})}
    assert any(name.startswith("FI_") for name in with_efa)
    assert not any(name.startswith("FI_") for name in without)
    assert not any(name.startswith("FI_") for name in {one.name for one in job_environment(None, {})})


def test_every_line_has_a_reason_and_the_users_word_wins() -> None:
    lines = job_environment(instance("p5.48xlarge"), {"OMP_NUM_THREADS": "7"}, cpus=12)
    assert all(one.why for one in lines)
    assert [one.value for one in lines if one.name == "OMP_NUM_THREADS"] == ["7"]
    assert "OMP_NUM_THREADS=7" in explain_environment(lines)
