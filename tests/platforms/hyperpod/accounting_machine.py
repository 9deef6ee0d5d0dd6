"""The inner machine of the test beside it: a head node with stand-ins of systemd and of the AWS command line. MariaDB,
munge, slurmdbd and Slurm are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import inner_machine
from inner_machine import private, programs, shell

WORK = Path(sys.argv[1])
until = partial(inner_machine.until, logs=["/var/log/slurmdbd.log", "/var/log/slurmctld.log"])
PASSWORD = "$HOME-`x`-%s*"
CONF = "/opt/slurm/etc/slurm.conf"
SYSTEMCTL = f"""#!/bin/bash
echo "$*" >> {WORK}/systemctl.log
export SLURM_CONF={CONF}
case "$*" in
  "restart slurmdbd" | "start slurmdbd") pgrep -x slurmdbd > /dev/null || slurmdbd ;;
  "restart slurmctld" | "start slurmctld") pgrep -x slurmctld > /dev/null || slurmctld -c ;;
esac
"""
# As HyperPod's agent leaves it, with one node that is this machine.
AGENT = f"""ClusterName=hp
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
SlurmUser=slurm
SlurmdUser=root
StateSaveLocation={WORK}/state
SlurmdSpoolDir={WORK}/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=localhost CPUs=2 RealMemory=500
PartitionName=train Nodes=ALL Default=YES State=UP
"""


def furnish() -> None:
    private(WORK, ["/run", "/opt"])
    # Slurm looks for an address of the machine beside loopback before it listens.
    shell("ip link add eth0 type veth peer name eth1 && ip addr add 127.77.0.1/24 dev eth0 && ip link set eth0 up")
    shell("mkdir -p /run/munge /run/mysqld /opt/slurm/etc /etc/trainwright")
    shell("chown munge: /run/munge && chown mysql: /run/mysqld")
    shell(f"mkdir -p {WORK}/state {WORK}/spool && chown slurm: {WORK}/state")
    Path(CONF).write_text(AGENT)
    Path("/etc/trainwright/node").write_text("cfn_node_type=HeadNode\ncfn_region=us-east-1\nnode_address=127.0.0.1\n")
    programs(WORK, {"systemctl": SYSTEMCTL, "aws": f"#!/bin/sh\ncat {WORK}/password\n"})
    (WORK / "password").write_text(PASSWORD + "\n")
    os.environ["SLURM_CONF"] = CONF


def database() -> None:
    """A MariaDB that knows one user, who may make the tables of Slurm and nothing else."""
    data, own, socket = WORK / "data", WORK / "tmp", "/run/mysqld/test.sock"
    shell(f"install -d -o mysql {own}")
    common = f"--no-defaults --user=mysql --datadir={data} --tmpdir={own}"
    shell(f"mariadb-install-db {common} --auth-root-authentication-method=socket")
    options = f"{common} --socket={socket} --port=3306 --bind-address=127.0.0.1"
    subprocess.Popen(["bash", "-c", f"exec mariadbd {options} > {WORK}/mariadb.log 2>&1"])
    until(f"mariadb-admin --no-defaults --socket={socket} ping")
    escaped = PASSWORD.replace("'", "''")
    user = "'slurm'@'localhost'"
    sql = f"CREATE USER {user} IDENTIFIED BY '{escaped}'; GRANT ALL ON `slurm\\_acct\\_%`.* TO {user};"
    subprocess.run(["mariadb", "--no-defaults", f"--socket={socket}"], input=sql, text=True, check=True)


def main() -> None:
    saw: dict[str, object] = {}
    furnish()
    shell("rm -f /var/log/munge/*; runuser -u munge -- munged --key-file=/etc/munge/munge.key")
    database()
    script = (WORK / "slurm.sh").read_text()
    (WORK / "password").write_text("two words\n")
    refused = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    saw["refused"] = [refused.returncode, refused.stderr]
    (WORK / "password").write_text(PASSWORD + "\n")
    shell(script)
    saw["mode"] = shell("stat -c '%a %U' /opt/slurm/etc/slurmdbd.conf")
    saw["clusters"] = until("sacctmgr -nP show cluster format=cluster | grep .")
    shell("slurmd -N n1")
    until("srun -N1 true")
    saw["job"] = until("sacct -nPX --format=state,jobname | grep COMPLETED")
    before = (WORK / "systemctl.log").read_text()
    shell(script)
    saw["again"] = (WORK / "systemctl.log").read_text().removeprefix(before)
    print(json.dumps(saw))


if __name__ == "__main__":
    main()
