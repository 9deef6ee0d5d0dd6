"""A HyperPod node as far as its lifecycle scripts can tell: this machine's own file system under an overlay, in mount
and process namespaces of its own. Users, groups, fstab, files and mounts are real; what needs AWS, a package mirror or
an init system is a small program that answers and leaves a line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3fXq2mW0z1s9ZpQb8dHk7tYvU4cRnL6eXaOgPiS5Tq me@laptop"
PASSWORD = "s3cret"
ADDRESSES = {"controller": "10.1.0.10", "train": "10.1.0.11"}

# What a node has beside its own system; each leaves the words it was called with.
PROGRAMS = {
    "systemctl": ":",
    "sacctmgr": ":",
    "sleep": ":",
    "hostname": 'if [ "$1" = -I ]; then echo "$ADDRESS 172.17.0.1"; else echo ip-10-1-0-10; fi',
    "getent": 'if [ "$1" = hosts ]; then echo "52.219.0.1 $2"; else exec /usr/bin/getent "$@"; fi',
    "aws": f"""case "$1 $2" in
  "s3 cp") source=${{@: -2:1}}; cp "$BUCKET/${{source#s3://*/}}" "${{@: -1}}" ;;
  "ec2 describe-key-pairs") echo "{PUBLIC_KEY}" ;;
  "secretsmanager get-secret-value") echo "{PASSWORD}" ;;
  "fsx describe-file-systems") echo abcdefgh ;;
  "fsx describe-volumes") printf 'fs-0aaaaaaaaaaaaaaaa\\t/fsx/homes\\n' ;;
  *) exit 2 ;;
esac""",
    "curl": 'while [ $# -gt 0 ]; do if [ "$1" = -o ]; then echo fetched > "$2"; fi; shift; done',
    "apt-get": """case "$*" in
  *nfs-common*) install -m 0755 /bin/true /sbin/mount.nfs4 ;;
  *docker-ce*) getent group docker > /dev/null || groupadd docker ;;
  *enroot.deb*) install -m 0755 /bin/true /usr/bin/enroot ;;
esac""",
    "apt-mark": ":",
    "git": 'mkdir -p "${@: -1}"',
    "make": 'if [ "${@: -1}" = install ]; then install -D -m 0755 /bin/true /usr/local/lib/slurm/spank_pyxis.so; fi',
    # The folder that stands for the file server, under the name of the mount folder.
    "mount": """[ ! -e "$SHARED/broken" ] || exit 32
if [ "$1" = --bind ]; then exec /bin/mount "$@"; fi
if grep -q " $1 none bind" /etc/fstab; then exec /bin/mount "$1"; fi
grep -q " $1 " /etc/fstab && mkdir -p "$SHARED$1" && exec /bin/mount --bind "$SHARED$1" "$1\"""",
}

ENTER = """set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$NODE/upper,workdir=$NODE/work" "$NODE/root"
mount --rbind /dev "$NODE/root/dev"
mount --rbind /proc "$NODE/root/proc"
mkdir -p "$NODE/root$SHARED" "$NODE/root$FILES"
mount --bind "$SHARED" "$NODE/root$SHARED"
mount --bind "$FILES" "$NODE/root$FILES"
exec chroot "$NODE/root" bash -c "$1"
"""
# As the image and HyperPod's agent leave a node before they call.
IMAGE = """set -e
useradd --create-home --shell /bin/bash ubuntu
id slurm > /dev/null 2>&1 || useradd --system slurm
mkdir -p /opt/slurm/etc /opt/ml/config
printf '# UNCONFIGURED FSTAB\\n' > /etc/fstab
: > /opt/slurm/etc/accounting.conf
cd /opt/slurm/etc
printf 'ClusterName=pod\\nSlurmctldHost=ip-10-1-0-10(10.1.0.10)\\ninclude accounting.conf\\n' > slurm.conf
cp "$FILES/resource_config.json" /opt/ml/config/
"""


def can_enter() -> bool:
    """Whether this machine lets us make such a node."""
    words = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "true"]
    return os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0


@dataclass
class Node:
    """One node of a group, kept between runs."""

    folder: Path
    shared: Path
    files: Path  # the lifecycle folder, the bucket and the stand-in programs
    group: str

    @classmethod
    def make(cls, folder: Path, shared: Path, files: Path, group: str) -> Node:
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)
        shared.mkdir(exist_ok=True)
        node = cls(folder, shared, files, group)
        assert node.run(IMAGE).returncode == 0
        return node

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "bash", "-c", ENTER, "enter"]
        environment = {
            "PATH": f"{self.files}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "NODE": str(self.folder), "SHARED": str(self.shared), "FILES": str(self.files),
            "BUCKET": str(self.files / "bucket"), "ADDRESS": ADDRESSES[self.group],
        }  # fmt: skip
        own = {**environment, "PATH": os.environ["PATH"]}
        inside = f"export PATH={environment['PATH']}; {command}"
        return subprocess.run([*words, inside], env=own, capture_output=True, text=True, timeout=120)

    def lifecycle(self) -> subprocess.CompletedProcess[str]:
        """As HyperPod does it: the files in a folder of its own, the entry script called without words."""
        return self.run('cp -r "$FILES/lifecycle" /tmp/scripts; cd /; bash /tmp/scripts/on_create.sh; rc=$?; '
                        "rm -rf /tmp/scripts; exit $rc")  # fmt: skip

    def calls(self, program: str) -> list[str]:
        path = self.folder / "upper/var/calls" / program
        return path.read_text().splitlines() if path.is_file() else []

    def forget_calls(self) -> None:
        for path in (self.folder / "upper/var/calls").iterdir():
            path.unlink()

    def state(self) -> dict[str, tuple[int, int, bytes | str]]:
        """Everything that differs from the machine below: mode, owner, content. Logs and calls are left out."""
        upper, seen = self.folder / "upper", {}
        for path in sorted(upper.rglob("*")):
            name = str(path.relative_to(upper))
            if name.startswith(("var/calls", "var/log", "tmp")) or path.is_dir():
                continue
            what = path.lstat()
            content: bytes | str = os.readlink(path) if path.is_symlink() else path.read_bytes()
            seen[name] = (what.st_mode, what.st_uid, content)
        return seen


def write_programs(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, body in PROGRAMS.items():
        text = f'#!/bin/bash\nmkdir -p /var/calls; echo "$*" >> /var/calls/{name}\n{body}\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def resource_config() -> str:
    groups = [
        {
            "Name": group, "InstanceType": "ml.m5.2xlarge",
            "Instances": [{"InstanceName": f"{group}-1", "CustomerIpAddress": address, "InstanceId": "i-0aaaaaaaa"}],
        }
        for group, address in ADDRESSES.items()
    ]  # fmt: skip
    arn = "arn:aws:sagemaker:us-east-2:111122223333:cluster/abcdefghijkl"
    return json.dumps({"ClusterConfig": {"ClusterName": "pod", "ClusterArn": arn}, "InstanceGroups": groups})
