"""`trainwright status` as a script sees it: a broken cluster is a failed verdict."""

import pytest
from click.testing import CliRunner

from trainwright.cli.status import command
from trainwright.platforms.base import ClusterStatus


class Platform:
    def __init__(self, state: str) -> None:
        self.state = state

    def status(self, name: str, spec: object) -> ClusterStatus:
        return ClusterStatus(name, "local", self.state, "slurm", (), ())


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize(("state", "status"), [("running", 0), ("broken", 1)])
def test_the_exit_status_shows_whether_it_runs(monkeypatch, state, status, words):
    monkeypatch.setattr("trainwright.platforms.base.find", lambda name: (Platform(state), name, None))
    result = CliRunner().invoke(command, ["mine", *words])
    assert result.exit_code == status
    assert state in result.output
