"""The configuration files of a local Slurm: quick to notice a dead node, quick to requeue, otherwise a real one's."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from pathlib import Path

from trainwright.errors import UserError
from trainwright.platforms.local.cluster import LocalCluster, LocalNode, LocalQueue, hostlist, machine_memory_mb
from trainwright.platforms.local.state import Record

HEAD_NAME = "head"
HEAD_ADDRESS = "127.77.255.254"
CONTROLLER_PORT, NODE_PORT, DATABASE_PORT = 6817, 6818, 6819
IDLE_SECONDS = 30  # an elastic node goes down after this much idleness
FAKE_GPU_MAJOR = 195  # the major number of NVIDIA's devices; without the driver such a device opens to nothing


def slurm_version() -> tuple[int, int]:
    """(22, 5) for `slurm-wlm 22.05.8`."""
    text = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)\.(\d+)", text)
    if not match:
        raise UserError(f"`slurmd -V` says {text!r}, not a version", fix="reinstall slurm-wlm")
    return int(match[1]), int(match[2])


def write_all(record: Record) -> None:
    """Every file under `etc/`: slurm.conf, gres.conf, cgroup.conf, hosts, the scripts and the munge key."""
    etc = record.folder / "etc"
    write_settings(record)
    if record.cluster.database:
        _private(etc / "slurmdbd.conf", slurmdbd_conf(record).encode())
    for name in ("epilog", "resume", "suspend"):
        _script(etc / f"{name}.sh", (Path(__file__).parent / f"{name}.sh").read_text())
    _private(etc / "munge.key", os.urandom(128))


def write_settings(record: Record) -> None:
    """The files that follow from the cluster's queues and settings."""
    etc = record.folder / "etc"
    (etc / "slurm.conf").write_text(slurm_conf(record))
    (etc / "gres.conf").write_text(gres_conf(record))
    (etc / "cgroup.conf").write_text(cgroup_conf())
    # In place: the nodes see this very file under /etc/hosts.
    (etc / "hosts").write_text(hosts(record.cluster))


def slurm_conf(record: Record) -> str:
    base = [*_identity(record), *_paths(record), *_behaviour(record.cluster, record.short), *_accounting(record)]
    settings = {key.lower(): (key, value) for key, value in [*base, *record.cluster.settings]}
    lines = [f"{key}={value}" for key, value in settings.values()]
    lines += [node_line(record, node) for node in record.cluster.nodes]
    lines += [_partition(record.cluster, queue) for queue in record.cluster.queues]
    return "\n".join(lines) + "\n"


def _identity(record: Record) -> list[tuple[str, object]]:
    user = getpass.getuser()
    port = CONTROLLER_PORT if record.namespaces else record.ports[0]
    host = f"{HEAD_NAME}({HEAD_ADDRESS})" if record.namespaces else f"{os.uname().nodename}({own_address()})"
    # Without this Slurm listens on every interface; with it, on the address that the machine's name resolves to.
    bound = not record.namespaces and loopback_address()
    only: list[tuple[str, object]] = [("CommunicationParameters", "NoInAddrAny,NoCtldInAddrAny")] if bound else []
    return [
        *only,
        ("ClusterName", record.cluster.name),
        ("SlurmctldHost", host),
        ("SlurmctldPort", port),
        ("AuthType", "auth/munge"),
        # Credentials live 5 s (the least Slurm accepts): a requeued job waits that long, not two minutes.
        ("AuthInfo", f"socket={record.short}/run/munge,cred_expire=5"),
        ("SlurmUser", user),
        ("SlurmdUser", user),
    ]


def loopback_address() -> str:
    """The address of this machine's own name, where that is a loopback address; Slurm can be bound to no other name."""
    try:
        answers = socket.getaddrinfo(os.uname().nodename.encode(), None, socket.AF_INET)
    except OSError:
        return ""
    address = str(answers[0][4][0])
    return address if address.startswith("127.") else ""


def own_address() -> str:
    """Where the daemons of a cluster without namespaces reach each other."""
    return loopback_address() or "127.0.0.1"


def reachable_from() -> str:
    """What is said about the ports of a cluster without namespaces."""
    if loopback_address():
        return "on loopback ports of this machine"
    return "on ports of this machine, on every interface: its name is no loopback name (only the munge key protects it)"


def _paths(record: Record) -> list[tuple[str, object]]:
    at = record.short
    return [
        ("StateSaveLocation", at / "spool/ctld"),
        ("SlurmdSpoolDir", at / "spool/%n"),
        ("SlurmctldPidFile", at / "run/slurmctld.pid"),
        ("SlurmdPidFile", at / "run/slurmd-%n.pid"),
        ("SlurmctldLogFile", record.log("slurmctld")),
        ("SlurmdLogFile", at / "log/slurmd-%n.log"),
        ("JobCompType", "jobcomp/filetxt"),
        ("JobCompLoc", at / "log/jobs.txt"),
        ("Epilog", at / "etc/epilog.sh"),
    ]


def _behaviour(cluster: LocalCluster, at: Path) -> list[tuple[str, object]]:
    fast = "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1"
    # A job whose prolog failed on one node runs on another at once, instead of waiting until someone releases it.
    fast += ",nohold_on_prolog_fail"
    settings: list[tuple[str, object]] = [
        ("ProctrackType", "proctrack/linuxproc"),
        ("TaskPlugin", "task/none"),
        ("MpiDefault", "none"),
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_CPU"),
        # Nodes may claim more processors than the machine has: a 64-node cluster fits on a laptop.
        ("SlurmdParameters", "config_overrides"),
        ("SchedulerParameters", fast),
        ("ReturnToService", 2),
        # Many nodes on few processors answer late; a node that is only slow must not be called dead.
        ("SlurmdTimeout", 5 + len(cluster.nodes) // 8),
        ("TCPTimeout", 2),
        ("MessageTimeout", 5 + len(cluster.nodes) // 8),
        ("KillWait", 2),
        ("JobRequeue", 1),
        ("EnforcePartLimits", "ALL"),  # a job that could never start is refused, not left waiting
    ]
    if any(queue.gpus for queue in cluster.queues):
        settings.append(("GresTypes", "gpu"))
    return settings + (_elastic(cluster, at) if cluster.elastic else [])


def _accounting(record: Record) -> list[tuple[str, object]]:
    if not record.cluster.database:
        return []
    return [
        ("AccountingStorageType", "accounting_storage/slurmdbd"),
        ("AccountingStorageHost", "127.0.0.1"),
        ("AccountingStoragePort", _database_port(record)),
        # Slurm keeps the socket of the munge between it and slurmdbd under this name.
        ("AccountingStoragePass", record.short / "run/munge"),
        ("AccountingStorageEnforce", "associations,qos"),
    ]


def _database_port(record: Record) -> int:
    return DATABASE_PORT if record.namespaces else record.ports[1]


def _elastic(cluster: LocalCluster, at: Path) -> list[tuple[str, object]]:
    static = [node for node in cluster.nodes if not node.elastic]
    keep: list[tuple[str, object]] = [("SuspendExcNodes", hostlist(static))] if static else []
    return [
        ("ResumeProgram", at / "etc/resume.sh"),
        ("SuspendProgram", at / "etc/suspend.sh"),
        ("SuspendTime", IDLE_SECONDS),
        ("SuspendTimeout", 10),
        ("ResumeTimeout", 60),
        ("PrivateData", "cloud"),  # show elastic nodes while they are down, too
        ("ResumeRate", 0),
        ("SuspendRate", 0),
        *keep,
    ]


def node_line(record: Record, node: LocalNode) -> str:
    where = f"NodeAddr={node.address} Port={NODE_PORT}"
    if not record.namespaces:
        where = f"NodeAddr={own_address()} NodeHostname={os.uname().nodename} Port={record.ports[2 + node.index]}"
    gres = f" Gres={_gres(node.queue)}" if node.queue.gpus else ""
    state = "CLOUD" if node.elastic else "UNKNOWN"
    size = f"CPUs={node.queue.cpus} RealMemory={machine_memory_mb()}"
    return f"NodeName={node.name} {where} {size}{gres} State={state}"


def _gres(queue: LocalQueue) -> str:
    return f"gpu:{queue.gpu_type}:{queue.gpus}" if queue.gpu_type else f"gpu:{queue.gpus}"


def _partition(cluster: LocalCluster, queue: LocalQueue) -> str:
    nodes = hostlist([node for node in cluster.nodes if node.queue is queue])
    default = "YES" if queue is cluster.queues[0] else "NO"
    return f"PartitionName={queue.name} Nodes={nodes} Default={default} MaxTime=INFINITE State=UP"


def gres_conf(record: Record) -> str:
    lines = []
    for node in record.cluster.nodes:
        kind = f" Type={node.queue.gpu_type}" if node.queue.gpu_type else ""
        devices = gpu_devices(record, node)
        lines += [f"NodeName={node.name} Name=gpu{kind} File={device}" for device in devices]
    return "\n".join(lines) + "\n"


def gpu_devices(record: Record, node: LocalNode) -> list[Path]:
    """The machine's own GPUs, dealt to the nodes in order; where there are none, character devices made to look so."""
    before = sum(other.queue.gpus for other in record.cluster.nodes[: node.index])
    real = sorted(Path("/dev").glob("nvidia[0-9]*"), key=lambda path: int(path.name[6:]))
    if real:
        mine = real[before : before + node.queue.gpus]
        if len(mine) < node.queue.gpus:
            raise UserError(
                f"node {node.name} asks for {node.queue.gpus} GPUs, and this machine has {len(real)} in all",
                where=f"queue {node.queue.name}",
                fix="ask for fewer gpus or fewer nodes",
            )
        return mine
    return [fake_gpu(record, number) for number in range(node.queue.gpus)]


def fake_gpu(record: Record, number: int) -> Path:
    """A device Slurm counts as a GPU: it asks only for a character device of its own."""
    path = record.folder / "dev" / f"gpu{number}"
    if os.geteuid() != 0:
        return Path(f"/dev/tty{number}")
    if not path.exists():
        os.mknod(path, 0o20666, os.makedev(FAKE_GPU_MAJOR, number))
    return record.short / "dev" / path.name


def cgroup_conf() -> str:
    """Nodes here share one machine, and its control groups, with other clusters: Slurm is to leave those alone."""
    return "CgroupPlugin=disabled\n" if slurm_version() >= (23, 11) else "ConstrainCores=no\n"


def hosts(cluster: LocalCluster) -> str:
    lines = ["127.0.0.1 localhost", f"{HEAD_ADDRESS} {HEAD_NAME}"]
    lines += [f"{node.address} {node.name}" for node in cluster.nodes]
    # The same addresses as a dual-stack socket sees them: torch looks up the name of each peer, and warns without it.
    lines += [f"::ffff:{node.address} {node.name}" for node in cluster.nodes]
    return "\n".join(lines) + "\n"


def slurmdbd_conf(record: Record) -> str:
    at = record.short
    host = HEAD_NAME if record.namespaces else os.uname().nodename
    settings: list[tuple[str, object]] = [
        ("AuthType", "auth/munge"),
        ("AuthInfo", f"socket={at}/run/munge"),
        ("DbdHost", host),
        ("DbdAddr", "127.0.0.1"),
        ("DbdPort", _database_port(record)),
        ("SlurmUser", getpass.getuser()),
        ("StorageType", "accounting_storage/mysql"),
        ("StorageHost", "localhost"),
        ("StorageUser", "root"),
        ("StorageLoc", "slurm"),
        ("LogFile", record.log("slurmdbd")),
        ("PidFile", at / "run/slurmdbd.pid"),
    ]
    return "\n".join(f"{key}={value}" for key, value in settings) + "\n"


def _private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
