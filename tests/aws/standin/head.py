"""The head node of every cluster in the stand-in: a real Slurm behind a real sshd on this machine, reached as on AWS:
by `aws ssm start-session` to the instance, with the key pair that AWS has under the name in the spec."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_relay import relay
from standin.outside import Server
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs

SLURM = ("sbatch", "squeue", "sinfo", "scontrol", "srun", "sacct", "scancel")
QUEUES = tuple(LocalQueue(name, 1, cpus=192, gpus=8) for name in ("train", "infer", "vision"))


@dataclass
class Head:
    """Where the node's parts lie. `sessions` names every session that was opened, as `aws` got it."""

    folder: Path
    server: Server

    @property
    def sessions(self) -> list[str]:
        calls = self.folder / "sessions"
        return calls.read_text().splitlines() if calls.is_file() else []

    def let_in(self, key: str, region: str) -> None:
        """What the node's first boot does: the key pair that AWS has may log in, and no other."""
        asked = self.server.client("ec2", region).describe_key_pairs(KeyNames=[key], IncludePublicKey=True)
        (self.folder / "authorized").write_text(asked["KeyPairs"][0]["PublicKey"])


@contextlib.contextmanager
def head_node(server: Server) -> Iterator[Head]:
    """The node while commands of `server` run: their PATH has `ssh` and `aws`, and no Slurm."""
    if missing_programs() or not shutil.which("sshd") or os.geteuid() != 0:
        pytest.skip("needs Slurm, sshd and root")
    folder = Path(tempfile.mkdtemp(prefix="twh"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_HOME", str(folder / "slurm"))
        record = life.up(LocalCluster("far", QUEUES), own_network=False)
        port = _free_port()
        _programs(folder, port)
        before = dict(server.environment)
        (folder / "tmp").mkdir()
        server.environment |= {"PATH": str(folder / "bin"), "TMPDIR": str(folder / "tmp")}
        daemon = _sshd(folder, port, str(record.conf))
        try:
            yield Head(folder, server)
        finally:
            server.environment.clear()
            server.environment.update(before)
            for control in (folder / "tmp").glob("tw-ssh-*"):  # connections that are kept for the next command
                subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={control}", "x"], capture_output=True)
            daemon.terminate()
            daemon.communicate()
            life.down("far", force=True)
            shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _programs(folder: Path, port: int) -> None:
    """All programs of this machine but Slurm's: the user of a cluster on AWS sits elsewhere."""
    (folder / "bin").mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / "bin" / program.name
            if program.name not in SLURM and not link.is_symlink():
                link.symlink_to(program)
    own = {
        # There is no user `ubuntu` on this machine.
        "ssh": f'#!/bin/sh\nexec {shutil.which("ssh")} -o User=root "$@"\n',
        "aws": relay(folder / "sessions", port),
        "session-manager-plugin": "#!/bin/sh\n",
    }
    for name, text in own.items():
        (folder / "bin" / name).unlink(missing_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


def _sshd(folder: Path, port: int, slurm_conf: str) -> subprocess.Popen[str]:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host")], check=True)
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        f"SetEnv SLURM_CONF={slurm_conf}\nSubsystem sftp internal-sftp\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    words = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd.conf")]
    daemon = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert daemon.stderr is not None
    assert "Server listening" in daemon.stderr.readline()
    return daemon
