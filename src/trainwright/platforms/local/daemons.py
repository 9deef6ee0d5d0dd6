"""Starting the processes of a local cluster, each with the cluster's mark, and waiting until they answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.errors import UserError
from trainwright.platforms.local import config, state
from trainwright.platforms.local.cluster import LocalNode
from trainwright.platforms.local.state import Record
from trainwright.schedulers.shell import Unreachable

HERE = Path(__file__).parent
NEW_NETWORK = ("unshare", "--net", "--uts", "--mount", "--propagation", "slave")
NEW_NODE = (*NEW_NETWORK, "--pid", "--fork", "--kill-child", "--mount-proc")


def launch(record: Record, role: str, command: Sequence[str], keep: Sequence[int] = ()) -> int:
    """Start one daemon, detached from this terminal; what it prints goes to `log/<role>.out`. `keep`: descriptors that
    it inherits."""
    with record.log(role).with_suffix(".out").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=state.environment(record, role),
            start_new_session=True,
            cwd="/",
            pass_fds=keep,
        )
    return process.pid


def start_munge(record: Record) -> None:
    """A munge of the cluster's own: its key, its socket; the system's munge is not touched."""
    at = record.short
    files = {"key-file": at / "etc/munge.key", "socket": at / "run/munge", "pid-file": at / "run/munge.pid"}
    more = {"log-file": record.log("munged"), "seed-file": at / "run/munge.seed"}
    options = [f"--{name}={path}" for name, path in {**files, **more}.items()]
    launch(record, "munged", ["munged", "--force", "--foreground", *options])
    wait_for(lambda: (at / "run/munge").exists(), "munged makes its socket", record.log("munged"))


def start_head(record: Record) -> None:
    """The network that connects the nodes. Nothing to do where they share the machine's."""
    if not record.namespaces:
        return
    script = ["sh", str(HERE / "head.sh"), config.HEAD_NAME, config.HEAD_ADDRESS, *_files(record)]
    launch(record, "head", [*NEW_NETWORK, *script])
    wait_for(lambda: _bridge_is_up(record), "the head's network comes up", record.log("head").with_suffix(".out"))


def start_head_again(record: Record) -> None:
    """A new process to hold the head's network, which slurmctld has kept alive."""
    launch(record, "head", [*enter(record), "sleep", "infinity"])


def start_controller(record: Record, fresh: bool) -> None:
    launch(record, "slurmctld", [*enter(record), "slurmctld", "-D", *(["-c"] if fresh else [])])


def start_nodes(record: Record, nodes: Sequence[LocalNode], booted: bool = True) -> None:
    """Start one slurmd per node, all at once; in namespaces, then connect each one to the head's bridge. Slurm requeues
    the jobs of a node that says it has booted; a slurmd that is only restarted finds them again."""
    pids: dict[str, int] = {}
    for node in nodes:
        (record.folder / "spool" / node.name).mkdir(exist_ok=True)
        pids[node.name] = launch(record, node_role(node), _node_command(record, node, booted))
    if record.namespaces:
        _connect(record, [(node, pids[node.name]) for node in nodes])


def start_supervisor(record: Record) -> None:
    """The process that powers elastic nodes up and down when Slurm asks."""
    power = record.folder / "run/power"
    if not power.exists():
        os.mkfifo(power)
    launch(record, "supervisor", [sys.executable, "-m", "trainwright.platforms.local.supervisor", record.cluster.name])


def node_role(node: LocalNode) -> str:
    return f"node-{node.name}"


def enter(record: Record) -> tuple[str, ...]:
    """What stands before a command that has to run on the head: nothing where nodes share the machine's network."""
    if not record.namespaces:
        return ()
    # slurmctld is in the head's network too, and holds it where the head's own process was killed.
    pid = state.pid_of(record, "head") or state.pid_of(record, "slurmctld")
    if pid is None:
        raise Unreachable(
            f"the head of cluster {record.cluster.name!r} is gone",
            where=str(record.log("head").with_suffix(".out")),
            fix="`trainwright up SPEC` starts it again",
        )
    return ("nsenter", f"--net=/proc/{pid}/ns/net", f"--uts=/proc/{pid}/ns/uts", f"--mount=/proc/{pid}/ns/mnt", "--")


def _node_command(record: Record, node: LocalNode, booted: bool) -> list[str]:
    if not record.namespaces:
        return ["slurmd", "-D", *(["-b"] if booted else []), "-N", node.name]
    # Every node is a machine: its own network, host name and process table; tini reaps what dies in it.
    return [*NEW_NODE, "tini", "-s", "--", "sh", str(HERE / "node.sh"), node.name, node.address, *_files(record)]


def _files(record: Record) -> list[str]:
    mounts = [word for pair in record.cluster.mounts for word in pair]
    return [str(record.short / "etc/hosts"), *mounts]


def _connect(record: Record, nodes: Sequence[tuple[LocalNode, int]]) -> None:
    ours = os.readlink("/proc/self/ns/net")
    disconnect(record, [node for node, _ in nodes])
    batch: list[str] = []
    for node, pid in nodes:
        wait_for(lambda pid=pid: os.readlink(f"/proc/{pid}/ns/net") != ours, f"{node.name} starts", Path())  # type: ignore[misc]
        batch += [
            f"link add {veth(node)} master br0 type veth peer name eth0 netns {pid}",
            f"link set {veth(node)} up",
        ]
    run_on_head(record, ["ip", "-batch", "-"], "\n".join(batch) + "\n")


def disconnect(record: Record, nodes: Sequence[LocalNode]) -> None:
    """Remove the nodes' veth pairs. A dead node's can linger: the kernel keeps its network for a while."""
    present = run_on_head(record, ["cat", "/proc/net/dev"])
    batch = [f"link del {veth(node)}" for node in nodes if f"{veth(node)}:" in present.split()]
    if batch:
        # The kernel may remove one meanwhile. One that stays would be noticed when its node is connected again.
        with contextlib.suppress(UserError):
            run_on_head(record, ["ip", "-force", "-batch", "-"], "\n".join(batch) + "\n")


def veth(node: LocalNode) -> str:
    return f"v{node.index}"


def run_on_head(record: Record, command: Sequence[str], text: str = "") -> str:
    """Run one short command where the controller runs, and give back what it printed."""
    environment = {**os.environ, "SLURM_CONF": str(record.conf)}
    done = subprocess.run([*enter(record), *command], input=text, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise UserError(f"`{' '.join(command)}` failed: {done.stderr.strip()}", where=f"cluster {record.cluster.name}")
    return done.stdout


def answers(record: Record, command: Sequence[str]) -> bool:
    """Whether a command on the head succeeds: how one learns that a daemon listens."""
    try:
        run_on_head(record, command)
    except UserError:
        return False
    return True


def wait_for(ready: Callable[[], bool], what: str, log: Path, seconds: float = 60.0) -> None:
    """Wait until something is true; after `seconds`, an error with the end of the log that should say why."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError):
            if ready():
                return
        if time.monotonic() > deadline:
            tail = log.read_text(errors="replace").splitlines()[-5:] if log.is_file() else []
            raise UserError(f"waited {seconds:.0f} s, and not yet: {what}", where=" | ".join(tail) or str(log))
        time.sleep(0.02)


def missing_programs() -> list[str]:
    """The programs a local Slurm needs and this machine lacks."""
    return [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name, path=state.PATH) is None]


def namespaces_allowed() -> bool:
    """Whether this user may give each node a network of its own."""
    if os.geteuid() != 0 or any(
        shutil.which(name, path=state.PATH) is None for name in ("unshare", "nsenter", "ip", "tini")
    ):
        return False
    return subprocess.run([*NEW_NODE, "true"], capture_output=True).returncode == 0


def _bridge_is_up(record: Record) -> bool:
    pid = state.pid_of(record, "head")
    if pid is None:
        return False
    show = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-o", "link", "show", "br0", "up"], capture_output=True
    )
    return b"br0" in show.stdout
