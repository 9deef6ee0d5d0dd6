"""A Slurm cluster becomes a spec from what its own commands print; the answers have the formats of several versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.platforms.existing.discovery import Discovery, spec_text
from trainwright.platforms.existing.slurm import discover_slurm, gpus_of
from trainwright.schedulers.shell import Done, Shell
from trainwright.spec.load import load

ANSWERS = Path(__file__).parent / "answers"
READS = (
    "scontrol",
    "srun --help",
    "cat /proc/mounts",
    "sh -c command -v",
    "id -un",
    "sacctmgr",
    "ls /sys/class/infiniband",
)


@dataclass(frozen=True)
class Recorded(Shell):
    """A shell that answers from files, and knows what it was asked."""

    version: str = ""
    asked: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], text: str = "", timeout: float = 120.0) -> Done:
        line = " ".join(command)
        self.asked.append(line)
        folder = ANSWERS / self.version
        more = json.loads((folder / "more.json").read_text())
        if command[0] == "scontrol":
            return Done(0, (folder / f"{command[-1]}.txt").read_text(), "")
        if command[0] == "sh":
            return Done(0 if command[-1].split()[-1] in more["programs"] else 1, "", "")
        if command[0] == "ls":
            return Done(0, more.get("cards", ""), "")
        if command[0] == "sacctmgr":
            return Done(0, more["associations"], "")
        return Done(0, {"srun": more["srun --help"], "cat": more["mounts"], "id": more["user"]}[command[0]], "")


def discovered(version: str) -> tuple[Discovery, Recorded]:
    shell = Recorded(version=version)
    return discover_slurm(shell), shell


def test_20_11() -> None:
    result, _ = discovered("20.11")
    assert result.spec["name"] == "alpha"
    # The default partition comes first; one that is down is left out.
    assert result.spec["queues"] == [
        {"name": "cpu", "nodes": 1, "cpus": 48, "exclusive": False},
        {"name": "gpu", "nodes": 3, "cpus": 96, "gpus": 8},
    ]
    assert [item["mount"] for item in result.spec["storage"]] == ["/scratch", "/home"]
    assert result.facts["slurm"] == "20.11.9"
    assert result.facts["accounts"] == ["research", "teaching"]
    assert result.facts["qos"] == ["high", "normal"]
    assert result.facts["nodes_down"] == ["gpu03"]
    assert any("at most 2-00:00:00" in note for note in result.notes)
    assert any("no pyxis" in note for note in result.notes)


def test_23_11_of_parallelcluster() -> None:
    result, _ = discovered("23.11")
    assert result.spec["queues"] == [{"name": "train", "instance": "p5.48xlarge", "count": 2}]
    assert result.spec["software"] == {"containers": "docker+enroot"}
    assert [item["mount"] for item in result.spec["storage"]] == ["/fsx", "/home"]
    assert result.facts["accounting"] is False


def test_the_network_is_read_from_what_slurm_states() -> None:
    old, _ = discovered("20.11")
    assert old.facts["network"]["nodes"] == {"hdr": 2, "hca:1": 1}
    assert (old.facts["network"]["topology"], old.facts["network"]["head"]) == ("tree", ["mlx5_0", "mlx5_1"])
    assert any("network cards" in note and "hdr (2 of 4 nodes)" in note for note in old.notes)
    aws, _ = discovered("23.11")
    assert aws.facts["network"]["efa_cards"] == {"p5.48xlarge": 32}
    assert discovered("25.11")[0].facts["network"]["nodes"] == {}


def test_the_spec_names_the_head_node_it_was_read_from() -> None:
    result = discover_slurm(Recorded(host="me@head", version="20.11"))
    assert result.spec["head"] == {"host": "me@head"}


class Nowhere(Shell):
    """A machine with Slurm's commands and no cluster."""

    def run(self, command: Sequence[str], text: str = "", timeout: float = 120.0) -> Done:
        return Done(1, "", "scontrol: error: fetch_config\nscontrol: fatal: Could not establish a configuration\n")


def test_a_machine_without_a_cluster_is_an_answer() -> None:
    with pytest.raises(UserError, match="no Slurm answers on this machine: scontrol: fatal") as caught:
        discover_slurm(Nowhere())
    assert (caught.value.status, "--host" in caught.value.fix) == (1, True)


def test_25_11() -> None:
    result, _ = discovered("25.11")
    assert result.spec["name"] == "new-cluster"
    assert result.spec["queues"][0] == {"name": "batch", "nodes": 2, "cpus": 144, "gpus": 4, "exclusive": False}
    assert result.facts["partitions"][0]["shapes"][1] == {"nodes": 1, "cpus": 64, "gpus": 2, "gpu_type": ""}
    assert any("2 kinds of nodes" in note for note in result.notes)
    assert any("runs: /folder" in note for note in result.notes)


@pytest.mark.parametrize("version", sorted(path.name for path in ANSWERS.iterdir() if path.name[0].isdigit()))
def test_the_spec_loads_and_a_job_renders(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    result, shell = discovered(version)
    path = tmp_path / "spec.yaml"
    path.write_text(spec_text(result))
    assert load(str(path), ()).spec.platform == "slurm"
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["submit", str(path), "--script", "train.py", "--nodes", "1", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"--partition={result.spec['queues'][0]['name']}" in done.output
    # Read-only: nothing but these questions.
    assert all(line.startswith(READS) and "update" not in line for line in shell.asked)


@pytest.mark.parametrize(
    ("gres", "count", "kind"),
    [
        ("(null)", 0, ""), ("gpu:8", 8, ""), ("gpu:h100:8(S:0-1)", 8, "h100"), ("craynetwork:4,gpu:2", 2, ""),
        ("gpu:a100:4(S:0),gpu:a100:4(S:1),mps:100", 8, "a100"), ("shard:16", 0, ""),
    ],
)  # fmt: skip
def test_gpus_of_a_node(gres: str, count: int, kind: str) -> None:
    assert gpus_of(gres) == (count, kind)


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import trainwright.platforms.existing.slurm as module

    shells: list[Any] = []
    answer = discovered("23.11")[0]
    monkeypatch.setattr(module, "discover_slurm", lambda shell: shells.append(shell) or answer)
    out = tmp_path / "cluster.yaml"
    done = CliRunner().invoke(cli, ["discover", "--host", "me@head", "-o", str(out)], catch_exceptions=False)
    assert (done.exit_code, done.stdout.strip(), shells[0].host) == (0, str(out), "me@head")
    assert yaml.safe_load(out.read_text())["platform"] == "slurm"
    done = CliRunner().invoke(cli, ["discover", "--json"], catch_exceptions=False)
    assert set(json.loads(done.stdout)) == {"source", "spec", "facts", "notes"}
    with pytest.raises(UserError, match="is there already"):
        CliRunner().invoke(cli, ["discover", "-o", str(out)], catch_exceptions=False)
