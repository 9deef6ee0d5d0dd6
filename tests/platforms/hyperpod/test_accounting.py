"""The accounting database for real: the lifecycle script of a head node joins Slurm to a MariaDB, and a job is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from inner_machine import machine_folder, run_inside
from trainwright.platforms.hyperpod.lifecycle import lifecycle_files
from trainwright.platforms.setting import Setting
from trainwright.platforms.wiring import wire
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load_text

MACHINE = Path(__file__).with_name("accounting_machine.py")
PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "munged")
SPEC = """name: hp
platform: hyperpod
region: us-east-1
queues:
  - {name: train, instance: p5.48xlarge, count: 1}
accounting: {uri: "127.0.0.1:3306", user: slurm, secret: "arn:aws:secretsmanager:us-east-1:111122223333:secret:db-a"}
"""


@pytest.mark.slow
def test_slurm_keeps_its_jobs_in_the_database() -> None:
    setting = Setting(resolve(load_text(SPEC, "spec").spec)[0])
    wiring = wire(setting, bucket=True, cluster_owns_lustre=False)
    with machine_folder(*PROGRAMS) as work:
        (work / "slurm.sh").write_text(lifecycle_files(setting, wiring.ids, wiring.stacks)["slurm.sh"])
        saw = run_inside(work, MACHINE)
    assert saw["refused"][0] == 1
    assert "Slurm's files cannot hold" in saw["refused"][1]
    assert saw["mode"] == "600 slurm", "the password is for Slurm's user alone"
    assert saw["clusters"] == "hp"
    assert saw["job"] == "COMPLETED|true"
    assert "restart" not in saw["again"], "a second run starts nothing again"
