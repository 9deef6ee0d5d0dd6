"""`--act` through stand-ins of scontrol and nvidia-smi that keep what they were asked: each verdict has its own action,
and a drain that a person asked for is never lifted. The real scontrol is used in test_health_slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.health.act import act
from trainwright.health.node import Node
from trainwright.health.verdict import Report, Result


def report(verdict: str, free: str = "pass") -> Report:
    status = "pass" if verdict == "pass" else "fail"
    results = (
        Result("gpu.free", "", free, "pass", ""),
        Result("gpu.xid", "", status, verdict, "Xid 119 on 0000:53:00"),
    )
    return Report("node-7", "p5.48xlarge", "quick", verdict, True, 0.0, 0.1, results)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose scontrol and nvidia-smi write down what they are asked; `refuse` makes one fail."""
    for name in ("scontrol", "nvidia-smi"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n'
            f'[ "$2" = show ] && cat {tmp_path}/node\ncase "$*" in *$(cat {tmp_path}/refuse)*) exit 1;; esac\nexit 0\n'
        )
        program.chmod(0o755)
    (tmp_path / "refuse").write_text("nothing-at-all")
    (tmp_path / "node").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def commands(folder: Path) -> list[str]:
    path = folder / "asked"
    return path.read_text().splitlines() if path.exists() else []


def test_isolate_drains(asked: Path) -> None:
    assert act(report("isolate"), Node()) == ["drained node-7"]
    reason = "trainwright health: isolate: gpu.xid: Xid 119 on 0000:53:00"
    assert commands(asked) == [f"scontrol update NodeName=node-7 State=DRAIN Reason={reason}"]


def test_reboot_is_left_to_slurm_and_drains_where_slurm_cannot(asked: Path) -> None:
    assert act(report("reboot"), Node()) == ["asked Slurm to reboot node-7 when its jobs have ended"]
    assert commands(asked)[0].startswith("scontrol reboot ASAP nextstate=RESUME reason=trainwright health: reboot")
    (asked / "refuse").write_text("reboot ASAP")
    assert act(report("reboot"), Node()) == ["drained node-7"]


def test_reset_resets_idle_gpus_only(asked: Path) -> None:
    assert act(report("reset"), Node()) == ["reset the GPUs; run the suite again"]
    assert commands(asked) == ["nvidia-smi --gpu-reset"]
    assert act(report("reset", free="warn"), Node()) == ["GPUs are in use", "drained node-7"]
    (asked / "refuse").write_text("--gpu-reset")
    assert act(report("reset"), Node())[-1] == "drained node-7"


@pytest.mark.parametrize(
    ("state", "resumed"),
    [
        ("State=IDLE+DRAIN Reason=trainwright health: isolate: gpu.xid [root@2026]", True),
        ("State=IDLE+DRAIN Reason=by hand [alice@2026]", False),
        ("State=IDLE Reason=", False),
    ],
)
def test_only_our_own_drain_is_lifted(asked: Path, state: str, resumed: bool) -> None:
    (asked / "node").write_text(state)
    assert bool(act(report("pass"), Node())) == resumed
    assert ("scontrol update NodeName=node-7 State=RESUME" in commands(asked)) == resumed
