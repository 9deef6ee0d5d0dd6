"""The command on a node: exit statuses for schedulers, JSON, a node condition, recordings, counts a person states."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_health_trees import FAULTS
from trees import healthy

from trainwright.catalog.instances import instances
from trainwright.check.facts import NodeFacts
from trainwright.cli.main import cli
from trainwright.health.__main__ import main
from trainwright.health.checks.burn import BURN
from trainwright.health.checks.software import torch_screen
from trainwright.health.cluster import Entry, differences, reports_in, show, sum_up
from trainwright.health.facts import ThisNode
from trainwright.health.kernel_log import table
from trainwright.health.node import Node, RecordedNode
from trainwright.health.profile import known_profiles, profile_of
from trainwright.health.registry import checks
from trainwright.health.suite import run_suite
from trainwright.health.verdict import report_from_json
from trainwright.health.versions import conflicts, numbers, versions_of

PENDING = ("<remapped_row_pending>No", "<remapped_row_pending>Yes")
HOT = ("<gpu_temp>33 C", "<gpu_temp>91 C")
REBOOT = ("<gpu_recovery_action>None", "<gpu_recovery_action>Reboot")
FAILED = ("<remapped_row_failure>No", "<remapped_row_failure>Yes")
SAME = ("<gpu_temp>33 C", "<gpu_temp>34 C")


def recorded(folder: Path, change: tuple[str, str] = SAME) -> str:
    tree = healthy("p5.48xlarge")
    tree.change("nvidia-smi -q -x", *change)
    return str(tree.write(folder))


@pytest.mark.parametrize(
    ("change", "verdict", "usable", "by_verdict"),
    [
        (SAME, "pass", 0, 0),
        (HOT, "monitor", 0, 3),
        (PENDING, "reset", 1, 4),
        (REBOOT, "reboot", 1, 5),
        (FAILED, "isolate", 1, 6),
    ],
)
def test_exit_statuses(
    change: tuple[str, str],
    verdict: str,
    usable: int,
    by_verdict: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A prolog sees 0 or 1; a script that routes sees the verdict."""
    path = recorded(tmp_path, change)
    assert main(["--replay", path]) == usable
    assert f"ip-10-1-7-42 (p5.48xlarge): {verdict}" in capsys.readouterr().out.splitlines()[-1]
    assert main(["--replay", path, "--exit-code", "verdict"]) == by_verdict


def test_the_report_as_json_is_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", recorded(tmp_path, PENDING), "--json"]) == 1
    report = report_from_json(json.loads(capsys.readouterr().out))
    assert (report.verdict, report.node, report.suite) == ("reset", "ip-10-1-7-42", "quick")
    assert report.versions["efa_installer"] == "1.47.0"
    assert {result.status for result in report.results} == {"pass", "skip", "fail"}


def test_the_condition_of_a_kubernetes_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", recorded(tmp_path, PENDING), "--condition"]) == 1
    (condition,) = json.loads(capsys.readouterr().out)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "TrainwrightHealthy",
        "False",
        "ResetGpuRowRemap",
    )
    assert condition["message"].startswith("gpu.row_remap: GPU 0")
    main(["--replay", recorded(tmp_path), "--condition"])
    (condition,) = json.loads(capsys.readouterr().out)["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "Pass", "every check passed")


def test_a_count_that_a_person_states_replaces_the_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path)
    assert main(["--replay", path, "--expect", "gpus=4"]) == 1
    assert "gpu.count: 8 GPUs of 4" in capsys.readouterr().out
    assert main(["--replay", path, "--instance", "p5en.48xlarge", "--expect", "efa=32"]) == 0
    assert main(["--replay", path, "--expect", "gpu=4"]) == 2
    assert "--expect" in capsys.readouterr().err
    assert main(["--replay", path, "--instance", "p5en.48xlarg"]) == 2
    assert "did you mean 'p5en.48xlarge'?" in capsys.readouterr().err


def test_what_is_no_recording_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("[]")
    assert main(["--replay", str(tmp_path / "x.json")]) == 2
    assert "no recording" in capsys.readouterr().err
    assert main(["--replay", recorded(tmp_path), "--act"]) == 2


def test_a_recording_of_this_machine_gives_its_verdict_again(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    command = [sys.executable, "-m", "trainwright.health", "--json"]
    now = json.loads(subprocess.run([*command, "--record", str(path)], capture_output=True, text=True).stdout)
    later = json.loads(subprocess.run([*command, "--replay", str(path)], capture_output=True, text=True).stdout)
    plain = [[{**r, "seconds": 0} for r in report["results"]] for report in (now, later)]
    assert plain[0] == plain[1]
    assert now["versions"] == later["versions"]


def test_a_node_needs_only_python_and_three_seconds(tmp_path: Path) -> None:
    """No site packages at all: neither torch nor what the control side needs."""
    import trainwright

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(trainwright.__file__).parents[1])}
    environment["TRAINWRIGHT_RUN"] = str(tmp_path)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-S", "-m", "trainwright.health"], capture_output=True, text=True, env=environment
    )
    took = time.monotonic() - began
    assert done.stderr == ""
    assert took < 3
    (entry,) = sum_up(tmp_path / "health")
    assert done.returncode == (0 if entry.verdict in ("pass", "monitor") else 1), "the status follows from the verdict"
    assert entry.verdict in done.stdout.splitlines()[-1], "the verdict is kept in the run folder"


def test_many_reports_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, change in enumerate((SAME, FAILED, SAME)):
        node = RecordedNode(Path(recorded(tmp_path, change)))
        node.name = f"node-{number}"
        report = run_suite(node, profile_of(node))
        (tmp_path / "health").mkdir(exist_ok=True)
        (tmp_path / "health" / f"{node.name}.json").write_text(json.dumps(report.as_json()))
    assert main(["--sum-up", str(tmp_path / "health")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["node-1", "-", "isolate"]
    assert lines[-1] == "2 pass, 1 isolate"
    assert main(["--sum-up", str(tmp_path / "health"), "--unfit"]) == 1
    assert capsys.readouterr().out == "node-1\n"
    assert main(["--sum-up", str(tmp_path)]) == 2


def test_half_a_report_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--replay", recorded(tmp_path), "--json"])
    lines = capsys.readouterr().out.splitlines()
    labelled = [f"0: {line}" for line in lines] + [f"1: {line}" for line in lines[:20]] + ["slurmstepd: error: gone"]
    assert list(reports_in("\n".join(labelled))) == ["ip-10-1-7-42"]


def test_the_odd_node_is_named() -> None:
    nodes = {f"node-{n}": {"nccl": "2.27.7", "driver": "580.1"} for n in range(4)}
    nodes["node-2"] = {"nccl": "2.26.2"}
    assert differences(nodes) == [
        "differs: NCCL is 2.27.7 on 3 nodes, but node-2: 2.26.2",
        "differs: NVIDIA driver is 580.1 on 3 nodes, but node-2: none",
    ]
    assert differences(dict.fromkeys(nodes, nodes["node-0"])) == []


@pytest.mark.parametrize(
    ("versions", "accelerator", "words"),
    [
        ({"cuda_runtime": "13.0.96", "driver": "570.172.08", "cuda_driver": "12.8"}, "", "CUDA 13 needs driver 580"),
        ({"cuda_runtime": "13.0.96", "driver": "570.172.08", "cuda_driver": "13.0"}, "", ""),
        ({"cuda_runtime": "13.0.96", "driver": "580.65.06"}, "", ""),
        ({"cuda_runtime": "12.8.90", "driver": "570.172.08"}, "", ""),
        ({"driver": "580.126.16", "efa_driver": "2.17.2"}, "", "peer-to-peer"),
        ({"driver": "570.172.08", "efa_driver": "2.17.2"}, "", ""),
        ({"ofi_nccl": "1.14.2"}, "b200", "p6-b200 needs aws-ofi-nccl 1.15.0"),
        ({"ofi_nccl": "1.14.2"}, "h200", ""),
        ({"fabric_manager": "570.1", "driver": "580.1"}, "", "Fabric Manager works only"),
    ],
)
def test_what_does_not_fit_together(versions: dict[str, str], accelerator: str, words: str) -> None:
    broken = conflicts(versions, accelerator)
    assert len(broken) == bool(words)
    assert not words or words in broken[0][1]


def test_versions_are_read_without_importing_anything(tmp_path: Path) -> None:
    found = versions_of(RecordedNode(Path(recorded(tmp_path))))
    assert found == {
        "os": "Ubuntu 24.04.3 LTS",
        "kernel": "6.14.0-1018-aws",
        "driver": "580.126.16",
        "cuda_driver": "13.0",
        "cuda_runtime": "13.0.96",
        "fabric_manager": "580.126.16",
        "efa_driver": "3.0.0",
        "efa_installer": "1.47.0",
        "libfabric": "2.4.0amzn1.0",
        "ofi_nccl": "1.18.0",
        "nccl": "2.28.9",
        "gdrcopy": "2.5.2",
        "slurm": "25.05.3",
        "python": "3.12",
        "torch": "2.9.1",
    }
    assert numbers(found["libfabric"]) == (2, 4, 0)


def test_host_and_container_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is a stand-in that honours the mount and the environment: there is no container daemon here."""
    engine = tmp_path / "docker"
    engine.write_text(
        '#!/bin/sh\nwhile [ "$1" != -v ]; do shift; done\ncode=${2%%:*}\n'
        f'export PYTHONPATH="$code"\nshift 5\nexec {sys.executable} -S "$@"\n'
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = CliRunner().invoke(cli, ["versions", "--container", "some/image:1", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert facts["container"]["kernel"] == facts["host"]["kernel"]
    assert "torch" in facts["host"]
    assert "torch" not in facts["container"], "the host's packages stay outside"


def test_the_checks_are_listed_with_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["gpu.xid"][1:6] == ["quick", "gpu", "0.05", "fail", "reset"]


def test_rules_of_check_can_query_a_node(tmp_path: Path) -> None:
    tree = healthy("p5.48xlarge")
    tree.files |= {"/sys/class/net/lo/mtu": "65536\n", "/sys/class/net/enp71s0/mtu": "9001\n"}
    node: NodeFacts = ThisNode(RecordedNode(tree.write(tmp_path)))
    assert node.interfaces() == ["enp71s0", "lo"]
    assert (node.version("cuda"), node.version("efa"), node.version("nccl")) == ("13.0.96", "1.47.0", "2.28.9")
    assert node.version("parallelcluster") is None
    assert node.path_exists("/opt/amazon/efa_installed_packages")
    assert not node.path_exists("/opt/nothing")
    assert "lo" in ThisNode().interfaces()


def test_the_lists_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["id"], first["needs"], first["severity"]) == ("gpu.driver", ["gpu"], "fail")
    assert CliRunner().invoke(cli, ["health", "--cluster", "--list"]).exit_code == 2


def test_cards_that_appear_late_after_boot_are_waited_for(tmp_path: Path) -> None:
    tree = healthy("p5en.48xlarge")
    late = {path: text for path, text in tree.files.items() if path.startswith("/sys/bus/pci/devices/0000:13:1b.0")}
    for path in late:
        del tree.files[path]
    tree.files["/proc/uptime"] = "41.20 1200.00\n"
    pauses = []

    class BootingNode(RecordedNode):
        def pause(self, seconds: float) -> None:
            pauses.append(seconds)
            self._files.update(late)
            self._parts = [path.split("/") for path in self._files]

    node = BootingNode(tree.write(tmp_path))
    assert run_suite(node, profile_of(node)).verdict == "pass"
    assert pauses == [5.0]


def test_the_programs_that_torch_runs_are_python(tmp_path: Path) -> None:
    """The load needs GPUs; what torch says of itself is asked here for real."""
    compile(BURN, "burn", "exec")
    screen, reason = torch_screen(Node())
    assert screen is not None, reason
    assert screen["torch"]
    assert screen["distributed"]["gloo"]


def test_a_command_that_never_returns_is_left_behind() -> None:
    began = time.monotonic()
    output = Node().execute(("sleep", "30"), seconds=0.2)
    assert (output.code, output.complaint) == (124, "sleep did not answer in 0.2 s")
    assert time.monotonic() - began < 5


def test_the_nodes_table_is_the_catalogs() -> None:
    """The node side cannot import the catalog; its copy must not drift."""
    catalog = {i.name: i for i in instances() if i.accelerator_count and i.accelerator_share == 1}
    assert set(known_profiles()) == set(catalog)
    for name, profile in known_profiles().items():
        i = catalog[name]
        counts = ((profile.gpus or 0) + (profile.neuron or 0), profile.efa, profile.vcpus, profile.memory_mib)
        assert counts == (i.accelerator_count, i.efa_cards, i.vcpus, i.memory_mib), name
        assert profile.accelerator == i.accelerator
        assert profile.nvlinks == (0 if "v100" in profile.accelerator else i.nvlinks), "V100 pairs differ: not judged"


def test_every_fatal_xid_of_the_eks_agent_takes_the_node_away() -> None:
    from trainwright.health.profile import rows

    fatal = {int(row["xid"]) for row in rows("xid.csv") if row["agent_fatal"] == "yes"}
    assert {code for code in fatal if table()[code][0] not in ("reset", "reboot", "isolate")} == set()
    assert len(table()) == 109


def test_the_page_lists_every_check_with_its_action() -> None:
    page = (Path(__file__).parents[2] / "docs/prove/health.md").read_text()
    listed = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \| (\w+) \|", page, re.MULTILINE)
    assert listed == [(one.id, one.suite, one.action) for one in checks()]
    assert f"({len(FAULTS)} faults)" in page


def test_the_table_has_the_worst_node_first(tmp_path: Path) -> None:
    node = RecordedNode(Path(recorded(tmp_path)))
    report = run_suite(node, profile_of(node))
    verdicts = ("monitor", "pass", "reset", "isolate", "reboot")
    entries = [Entry(verdict, "idle", dataclasses.replace(report, verdict=verdict)) for verdict in verdicts]
    lines = show([*entries, Entry("silent", "idle")]).splitlines()
    assert [line.split()[0] for line in lines[1:7]] == ["isolate", "reboot", "reset", "silent", "monitor", "pass"]
    assert Entry("silent", "idle").asked  # it was asked and did not answer, so `health --cluster` exits 1
    assert not Entry("busy", "allocated").asked


def test_the_verb_takes_the_options_of_the_node_side(tmp_path: Path) -> None:
    words = ["health", "--replay", recorded(tmp_path, FAILED), "--exit-code", "verdict"]
    assert CliRunner().invoke(cli, words).exit_code == 6
    done = CliRunner().invoke(cli, ["versions", "some-cluster"])
    assert done.exit_code == 2


def test_a_recording_that_cannot_be_written_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--record", "/proc/none"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_node_that_reads_a_shared_file_system_slowly_is_named(tmp_path: Path) -> None:
    node = RecordedNode(Path(recorded(tmp_path)))
    report = run_suite(node, profile_of(node))
    one = dataclasses.replace(report.results[0], id="storage.rate", status="pass")
    rated = {"a": "/fsx 900 MiB/s, /home 90 MiB/s", "b": "/fsx 100 MiB/s, /home 80 MiB/s", "c": "/fsx 950 MiB/s"}
    results = {name: (dataclasses.replace(one, message=text),) for name, text in rated.items()}
    entries = [Entry(name, "idle", dataclasses.replace(report, results=results[name])) for name in rated]
    slow = [line for line in show(entries).splitlines() if line.startswith("slow: ")]
    assert slow == ["slow: b reads /fsx at 100 MiB/s, usual is 900"]
