"""The head node of a Slurm cluster: what a user names with --host or `head.host` reaches ssh as a destination only."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.platforms.base import platform_named
from trainwright.runs.reach import scheduler_for, slurm_named
from trainwright.schedulers.shell import Shell
from trainwright.spec.load import load

SPEC = """\
name: c
platform: slurm
{head}queues: [{{name: train, nodes: 2, cpus: 2}}]
jobs: [{{name: j, command: [hostname]}}]
"""
VERBS = [
    ("submit", "spec.yaml", "--dry-run"),
    ("drill", "spec.yaml"),
    ("resume", "last"),
    ("health", "--cluster"),
    ("versions", "--cluster"),
    ("discover",),
]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.format(head=""))
    return path


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_an_option_of_ssh_is_no_host(spec: Path, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*words, "--host", "-oProxyCommand=touch pwned; false"])
    assert done.exit_code == 2
    assert "is not an ssh destination" in done.stderr
    assert not (spec.parent / "pwned").exists()


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a\\nb", "", " "])
def test_a_spec_cannot_smuggle_one_in(spec: Path, host: str) -> None:
    spec.write_text(SPEC.format(head=f'head: {{host: "{host}"}}\n'))
    with pytest.raises(UserError, match="is not an ssh destination"):
        load(spec)


def test_ssh_gets_the_host_after_its_options() -> None:
    words = Shell(host="-oProxyCommand=x").argv(["sinfo", "-h"])
    assert words[-3:] == ["--", "-oProxyCommand=x", "sinfo -h"]


def test_the_spec_names_the_head_node(spec: Path) -> None:
    spec.write_text(SPEC.format(head="head: {host: me@head}\n"))
    loaded = load(spec).spec
    for dry in (True, False):
        assert scheduler_for(loaded, loaded.jobs[0], dry=dry).shell.host == "me@head"
        assert scheduler_for(loaded, loaded.jobs[0], "me@other", dry=dry).shell.host == "me@other"
    assert scheduler_for(loaded, loaded.jobs[0], chosen="process").shell.host == ""
    assert slurm_named(str(spec)).shell.host == "me@head"
    assert slurm_named(str(spec), "me@other").shell.host == "me@other"


def test_a_run_is_found_where_it_was_submitted() -> None:
    assert platform_named("slurm").scheduler_again("c", "me@head", {}).shell.host == "me@head"
