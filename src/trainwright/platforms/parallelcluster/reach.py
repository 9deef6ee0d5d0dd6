"""The way to a cluster's head node: ssh, straight where the port is open, else through Session Manager. It is one block
of ssh configuration, kept under our home, so that every command of ours and any ssh of the user's goes the same way."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.aws.head_node import HeadNode
from trainwright.errors import UserError
from trainwright.files import write_text
from trainwright.home import home
from trainwright.schedulers.shell import own_config

USERS = {"ubuntu": "ubuntu", "rocky": "rocky"}  # by the start of the system's name; all others have ec2-user
CLOSED = "127.0.0.1/32"  # what a plan writes where no port is open
SSM_PROGRAMS = {"aws": "the AWS command line 2", "session-manager-plugin": "AWS's Session Manager plugin"}


def alias_of(cluster: str) -> str:
    """The host by which our ssh configuration knows a cluster's head node."""
    return f"trainwright-{cluster}"


@dataclass(frozen=True, slots=True)
class Way:
    """How one head node is reached. `direct`: its ssh port is open to us."""

    head: HeadNode
    direct: bool = False
    identity: str = ""  # a private key of ours; empty: ssh's own choice

    @property
    def alias(self) -> str:
        return alias_of(self.head.cluster)

    @property
    def user(self) -> str:
        return next((user for start, user in USERS.items() if self.head.os.startswith(start)), "ec2-user")

    @property
    def has_ssh(self) -> bool:
        """A node that was started without a key pair has no key to let in."""
        return bool(self.head.key)

    def block(self) -> str:
        """The node as a host of an ssh configuration."""
        head = self.head
        session = ["aws", "--region", head.region, "ssm", "start-session", "--target", "%h"]
        session += ["--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=%p"]
        options = {
            "HostName": head.public if self.direct else head.id,
            "User": self.user,
            # A node that is made anew has another key; its id tells it from the last one.
            "HostKeyAlias": f"{self.alias}-{head.id}",
            "UserKnownHostsFile": _quoted(str(home() / "ssh" / "known_hosts")),
            "StrictHostKeyChecking": "accept-new",
            "ServerAliveInterval": "30",
            **({"IdentityFile": _quoted(self.identity), "IdentitiesOnly": "yes"} if self.identity else {}),
            **({} if self.direct else {"ProxyCommand": " ".join(session)}),
        }
        return "\n".join([f"Host {self.alias}", *(f"  {name} {value}" for name, value in options.items())]) + "\n"

    def keep(self) -> Path:
        """Write the block where our commands look for it."""
        self.require()
        path = own_config(self.alias)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(path, f"{self.block()}Include ~/.ssh/config\n")
        return path

    def require(self) -> None:
        """What this way needs: a key on the node, and the programs of Session Manager here."""
        if not self.has_ssh:
            raise UserError(
                f"the head node of {self.head.cluster} was started without a key pair, and this goes over ssh",
                fix="name a key in the spec (`head: {key: NAME}`); `trainwright connect` opens a shell without one",
            )
        if not self.direct:
            require_session_manager()


def require_session_manager() -> None:
    for program, title in SSM_PROGRAMS.items():
        if not shutil.which(program):
            raise UserError(f"{title} ({program}) is not on this machine", fix=f"install {title}")


def shell_command(way: Way, words: Sequence[str], terminal: bool, forwards: Sequence[str] = ()) -> list[str]:
    """A shell on the node, or one command in a login shell: only that has Slurm on its path."""
    if not way.has_ssh:
        return _session(way, words, forwards)
    config = way.keep()
    options = [option for port in forwards for option in ("-L", port)]
    command = ["bash -lc " + shlex.quote(shlex.join(words))] if words else []
    return ["ssh", "-F", str(config), *(["-t"] if terminal and words else []), *options, way.alias, *command]


def copy_command(way: Way, source: str, target: str, to_node: bool) -> list[str]:
    """Copy a file or folder to the node or from it."""
    there = f"{way.alias}:{target if to_node else source}"
    pair = [source, there] if to_node else [there, target]
    return ["scp", "-F", str(way.keep()), "-r", "-q", "--", *pair]


def _session(way: Way, words: Sequence[str], forwards: Sequence[str]) -> list[str]:
    """Without a key: Session Manager itself, as the user that owns the cluster's files."""
    require_session_manager()
    start = ["aws", "--region", way.head.region, "ssm", "start-session", "--target", way.head.id]
    if forwards:
        near, _, far = forwards[0].partition(":")
        ports = {"localPortNumber": [near], "portNumber": [far.rpartition(":")[2] or near]}
        return [*start, "--document-name", "AWS-StartPortForwardingSession", "--parameters", json.dumps(ports)]
    command = f"sudo -iu {way.user}" + (f" bash -lc {shlex.quote(shlex.join(words))}" if words else "")
    parameters = json.dumps({"command": [command]})
    return [*start, "--document-name", "AWS-StartInteractiveCommand", "--parameters", parameters]


def add_to_user_config(way: Way, path: Path) -> None:
    """Put the block into an ssh configuration of the user's, in place of an earlier one of the same cluster."""
    begin, end = f"# trainwright {way.head.cluster}: begin", f"# trainwright {way.head.cluster}: end"
    block = f"{begin}\n{way.block()}{end}\n"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    earlier = re.compile(rf"^{re.escape(begin)}\n.*?^{re.escape(end)}\n", re.MULTILINE | re.DOTALL)
    # First in the file: the first value that ssh finds counts.
    text = (
        earlier.sub(lambda _: block, text, count=1) if earlier.search(text) else block + ("\n" + text if text else "")
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(path, text)
    path.chmod(0o600)


def _quoted(path: str) -> str:
    """A path as ssh's configuration takes it; a percent sign would start one of its own words."""
    return '"' + path.replace("%", "%%") + '"'
