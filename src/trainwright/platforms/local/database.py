"""MariaDB and slurmdbd for one local cluster: accounts, QoS and `sacct`, where Debian's packages are at hand."""

from __future__ import annotations

import getpass
import shutil
import subprocess

from trainwright.errors import UserError
from trainwright.platforms.local import state
from trainwright.platforms.local.daemons import answers, enter, launch, run_on_head, wait_for
from trainwright.platforms.local.state import Record

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd")


def at_hand() -> bool:
    return all(shutil.which(name, path=state.PATH) for name in PROGRAMS)


def start(record: Record) -> None:
    """Make an empty database of the cluster's own, reached by a socket only, and put slurmdbd before it."""
    if not at_hand():
        raise UserError(
            "the accounting database needs MariaDB and slurmdbd, which are not installed",
            fix="apt-get install mariadb-server slurmdbd, or leave --database out: jobs are then kept in a file",
        )
    data = record.folder / "spool/mariadb"
    made = subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            f"--user={getpass.getuser()}",
            "--auth-root-authentication-method=socket",
        ],
        capture_output=True,
        text=True,
        env=state.environment(record, "mariadb"),
    )
    if made.returncode:
        raise UserError(f"mariadb-install-db failed: {made.stderr.strip()[-300:]}", where=str(data))
    start_daemons(record)


def start_daemons(record: Record) -> None:
    """MariaDB and slurmdbd on the database that is there."""
    data, socket = record.folder / "spool/mariadb", record.short / "run/mariadb"
    socket.unlink(missing_ok=True)
    options = [f"--datadir={data}", f"--socket={socket}", "--skip-networking", f"--user={getpass.getuser()}"]
    launch(record, "mariadb", ["mariadbd", "--no-defaults", *options])
    wait_for(socket.exists, "MariaDB makes its socket", record.log("mariadb").with_suffix(".out"))
    launch(record, "slurmdbd", [*enter(record), "env", f"MYSQL_UNIX_PORT={socket}", "slurmdbd", "-D"])


def register(record: Record) -> None:
    """Tell the database of the cluster, so that jobs can be charged to accounts from the first one on."""
    ask = ["sacctmgr", "show", "cluster"]
    wait_for(lambda: answers(record, ask), "slurmdbd answers", record.log("slurmdbd"))
    if record.cluster.name not in run_on_head(record, ["sacctmgr", "-nP", "show", "cluster", "format=cluster"]).split():
        run_on_head(record, ["sacctmgr", "-i", "add", "cluster", record.cluster.name])
