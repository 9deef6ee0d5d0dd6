"""Reads a running Slurm cluster (20.11 to 25.11) through its own commands: partitions, nodes, GPUs, limits, accounts,
shared file systems, container runtime. It only asks; nothing is installed or changed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from trainwright.catalog.instances import find_instance
from trainwright.platforms.existing.discovery import Discovery, spec_name
from trainwright.schedulers.shell import Shell, Unreachable
from trainwright.schedulers.slurm_read import fields_of, settings_of

_GPU = re.compile(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?:(\d+)")
_SHARED = frozenset({
    "lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "afs", "pvfs2", "orangefs", "glusterfs",
    "fuse.glusterfs", "fuse.juicefs", "fuse.ceph", "vastnfs",
})  # fmt: skip
_SYSTEM = re.compile(r"/(boot|sys|proc|run|dev|snap|var/lib|etc|usr|opt/(slurm|parallelcluster))(/|$)")
_PROGRAMS = ("enroot", "docker", "podman", "apptainer", "singularity")
_FABRIC = re.compile(
    r"(?:^|[_:-])(?:ib|infiniband|[sdqfehnx]dr(?:\d+)?|roce\w*|efa|opa|omnipath|slingshot|hsn|craynetwork|nic|hca|mlx\w*|"
    r"cx\d|rdma)(?:$|[_:-])",
    re.IGNORECASE,
)
_GONE = re.compile(r"DOWN|DRAIN|FAIL|FUTURE|UNKNOWN|NO_RESPOND|\*")


@dataclass(frozen=True, slots=True)
class Node:
    """One node as `scontrol show node` has it."""

    name: str
    state: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    other_gres: tuple[str, ...] = ()  # what is counted beside GPUs, such as network cards

    @property
    def shape(self) -> tuple[int, int, str]:
        return self.cpus, self.gpus, self.gpu_type


def discover_slurm(shell: Shell) -> Discovery:
    """The cluster that the shell's machine is the head of."""
    settings = _settings(shell)
    nodes = [_node(line) for line in _lines(shell, "node")]
    partitions = [fields_of(line) for line in _lines(shell, "partition")]
    name = spec_name(settings.get("ClusterName", ""), "cluster")
    result = Discovery(f"Slurm {settings.get('ClusterName', '')} on {shell.host or 'this machine'}")
    result.spec = {"name": name, "platform": "slurm", "queues": []}
    result.facts = {"slurm": settings.get("SLURM_VERSION", ""), "partitions": []}
    for partition in partitions:
        _partition(result, partition, nodes)
    _containers(result, shell)
    _storage(result, shell)
    _accounts(result, shell, settings)
    _down(result, nodes)
    _network(result, shell, settings, nodes)
    if shell.host:
        result.spec["head"] = {"host": shell.host}
    if not result.spec["queues"]:
        result.notes.append("no partition is up: the spec needs a queue")
    return result


def _settings(shell: Shell) -> dict[str, str]:
    done = shell.run(["scontrol", "show", "config"])
    if done.code != 0:
        words = done.err.strip().splitlines() or ["no answer"]
        raise Unreachable(
            f"no Slurm answers on {shell.host or 'this machine'}: {words[-1]}",
            fix="look at `sinfo` there" if shell.host else "name the head node of the cluster: --host user@head",
        )
    return settings_of(done.out)


def _lines(shell: Shell, what: str) -> list[str]:
    text = shell.output(["scontrol", "--oneliner", "--all", "show", what])
    return [line for line in text.splitlines() if "=" in line]


def _node(line: str) -> Node:
    got = fields_of(line)
    gpus, kind = gpus_of(got.get("Gres", ""))
    if not gpus:
        counted = re.search(r"gres/gpu=(\d+)", got.get("CfgTRES", ""))
        gpus = int(counted[1]) if counted else 0
    features = got.get("AvailableFeatures", got.get("Features", ""))
    return Node(
        name=got.get("NodeName", ""),
        state=got.get("State", ""),
        cpus=_whole(got.get("CPUTot", "")),
        memory_mb=_whole(got.get("RealMemory", "")),
        gpus=gpus,
        gpu_type=kind,
        partitions=tuple(filter(None, got.get("Partitions", "").split(","))),
        features=tuple(f for f in features.split(",") if f and f != "(null)"),
        other_gres=tuple(g for g in _bare(got.get("Gres", "")).split(",") if g and not g.startswith(("gpu", "("))),
    )


def gpus_of(gres: str) -> tuple[int, str]:
    """Count and type of the GPUs in `gpu:h100:8(S:0-1),shard:16`; several types are added up under the first."""
    counts = _GPU.findall(_bare(gres))
    return sum(int(count) for _, count in counts), next((kind for kind, _ in counts if kind), "")


def _bare(gres: str) -> str:
    """Without the sockets in brackets."""
    return re.sub(r"\([^()]*\)", "", gres)


def _partition(result: Discovery, said: dict[str, str], nodes: list[Node]) -> None:
    """One partition is one queue of the spec, with the nodes that most of it has."""
    name = said.get("PartitionName", "")
    own = [node for node in nodes if name in node.partitions]
    limits = {
        "name": name,
        "state": said.get("State", ""),
        "default": said.get("Default") == "YES",
        "nodes": len(own) or _whole(said.get("TotalNodes", "")),
        "max_time": said.get("MaxTime", ""),
        "default_time": said.get("DefaultTime", ""),
        "max_nodes": said.get("MaxNodes", ""),
        "accounts": said.get("AllowAccounts", ""),
        "qos": said.get("AllowQos", said.get("QoS", "")),
        "shapes": [
            {"nodes": count, "cpus": cpus, "gpus": gpus, "gpu_type": kind}
            for (cpus, gpus, kind), count in Counter(node.shape for node in own).most_common()
        ],
    }
    result.facts["partitions"].append(limits)
    if said.get("State", "UP") != "UP" or not own:
        result.notes.append(f"partition {name} is left out: {said.get('State', 'UP') if own else 'it has no nodes'}")
        return
    queue = _queue(result, spec_name(name, "queue"), own)
    if "EXCLUSIVE" not in said.get("OverSubscribe", ""):
        queue["exclusive"] = False
    if limits["max_time"] not in ("", "UNLIMITED", "NONE"):
        result.notes.append(f"partition {name}: jobs run at most {limits['max_time']}")
    queues: list[dict[str, Any]] = result.spec["queues"]
    queues.insert(0, queue) if limits["default"] else queues.append(queue)


def _queue(result: Discovery, name: str, own: list[Node]) -> dict[str, Any]:
    counted = Counter(node.shape for node in own)
    (cpus, gpus, kind), count = counted.most_common(1)[0]
    if len(counted) > 1:
        result.notes.append(f"partition {name} has {len(counted)} kinds of nodes: the {count} most common are taken")
    chosen = [node for node in own if node.shape == (cpus, gpus, kind)]
    types = {f for node in chosen for f in node.features if find_instance(f) is not None}
    queue: dict[str, Any] = {"name": name}
    if len(types) == 1:
        queue |= {"instance": types.pop(), "count": count}
    else:
        queue |= {"nodes": min(count, 4096), "cpus": max(1, cpus)}
        if gpus:
            queue["gpus"] = gpus
    if kind:
        result.notes.append(f"partition {name}: {gpus} {kind} GPUs per node")
    return queue


def _containers(result: Discovery, shell: Shell) -> None:
    """pyxis shows itself in srun's help; the programs are looked for where the shell is."""
    pyxis = "--container-image" in shell.run(["srun", "--help"]).out
    programs = [name for name in _PROGRAMS if shell.run(["sh", "-c", f"command -v {name}"]).code == 0]
    result.facts["containers"] = {"pyxis": pyxis, "programs": programs}
    if pyxis:
        result.spec["software"] = {"containers": "docker+enroot" if "docker" in programs else "enroot"}
    elif programs:
        result.notes.append(f"no pyxis: srun starts no containers (there is {', '.join(programs)})")


def _storage(result: Discovery, shell: Shell) -> None:
    """Network file systems, as the head node has them mounted."""
    mounts = []
    for line in shell.run(["cat", "/proc/mounts"]).out.splitlines():
        words = line.split()
        if len(words) > 2 and words[2] in _SHARED and not _SYSTEM.match(words[1]):
            mounts.append({"mount": words[1].replace("\\040", " "), "type": words[2]})
    result.facts["file_systems"] = mounts
    named = [item["mount"] for item in mounts if re.fullmatch(r"/[A-Za-z0-9._/-]+", item["mount"])]
    # The fastest first: run folders go there.
    order = {item["mount"]: 0 if item["type"] in ("lustre", "gpfs", "beegfs", "wekafs") else 1 for item in mounts}
    folders = sorted(dict.fromkeys(named), key=lambda mount: order[mount])
    if folders:
        result.spec["storage"] = [{"mount": mount, "folder": mount} for mount in folders]
    else:
        result.notes.append("no shared file system is mounted here: say where run folders go, `runs: /folder`")


def _accounts(result: Discovery, shell: Shell, settings: dict[str, str]) -> None:
    """What the user may be charged to, where Slurm keeps accounts."""
    kept = "slurmdbd" in settings.get("AccountingStorageType", "")
    result.facts["accounting"] = kept
    if not kept:
        return
    user = shell.run(["id", "-un"]).out.strip()
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account,qos"]
    done = shell.run(words)
    rows = [line.split("|") for line in done.out.splitlines() if "|" in line] if done.code == 0 else []
    accounts = sorted({row[0] for row in rows})
    qos = sorted({name for row in rows for name in row[1].split(",") if name})
    result.facts |= {"accounts": accounts, "qos": qos}
    if len(accounts) > 1:
        result.notes.append(f"accounts you may use (`account:` of a job): {', '.join(accounts)}")


def _network(result: Discovery, shell: Shell, settings: dict[str, str], nodes: list[Node]) -> None:
    """What Slurm says about the network between the nodes, and the cards of the machine that answers. A spec has no
    field for it: where the instance type is known, its cards are in the catalog."""
    words = Counter(word for node in nodes for word in (*node.features, *node.other_gres) if _FABRIC.search(word))
    types = {word for node in nodes for word in node.features}
    cards = {name: kind.efa_cards for name in sorted(types) if (kind := find_instance(name)) and kind.efa_cards}
    result.facts["network"] = {
        "switch": _plain(settings.get("SwitchType", "")),
        "topology": _plain(settings.get("TopologyPlugin", "")),
        "nodes": dict(words),
        "efa_cards": cards,
        "head": shell.run(["ls", "/sys/class/infiniband"]).out.split(),
    }
    if words:
        named = ", ".join(f"{word} ({count} of {len(nodes)} nodes)" for word, count in words.most_common())
        result.notes.append(f"network cards, by what the nodes state: {named}")


def _plain(setting: str) -> str:
    """`topology/tree` as `tree`; nothing where there is none."""
    name = setting.rpartition("/")[2]
    return "" if name in ("none", "default", "(null)", "flat") else name


def _down(result: Discovery, nodes: list[Node]) -> None:
    down = [node.name for node in nodes if _GONE.search(node.state)]
    result.facts["nodes_down"] = down
    if down:
        result.notes.append(f"{len(down)} of {len(nodes)} nodes are down or drained: `sinfo -R` says why")


def _whole(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0
