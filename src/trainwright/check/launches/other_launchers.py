"""What a launcher has in place of an option of another launcher, which nobody means for the script."""

from __future__ import annotations

from trainwright.check.launches.options import Options
from trainwright.check.model import Value, known
from trainwright.check.readers.arguments import whole

# The same thing in the words of torchrun, accelerate, the deepspeed launcher, and of those who remember none of them.
_MEANINGS = {
    "processes": ("nproc_per_node", "num_gpus", "num_processes", "n_gpus", "ngpus", "n_gpu", "ngpu"),
    "nodes": ("nnodes", "num_machines", "num_nodes"),
    "rank": ("node_rank", "machine_rank"),
    "address": ("master_addr", "main_process_ip", "master_ip", "master_address", "main_process_addr"),
    "port": ("master_port", "main_process_port", "main_port", "process_port"),
    "hosts": ("hostfile",),
    "endpoint": ("rdzv_endpoint",),
}
_OWN = {
    "torchrun": {
        "processes": "nproc_per_node", "nodes": "nnodes", "rank": "node_rank", "address": "master_addr",
        "port": "master_port",
    },
    "accelerate": {
        "processes": "num_processes", "nodes": "num_machines", "rank": "machine_rank", "address": "main_process_ip",
        "port": "main_process_port", "hosts": "deepspeed_hostfile",
    },
    "deepspeed": {
        "processes": "num_gpus", "nodes": "num_nodes", "rank": "node_rank", "address": "master_addr",
        "port": "master_port",
    },
}  # fmt: skip
_NOWHERE_ELSE = ("standalone", "use_env", "rdzv_id", "rdzv_backend", "rdzv_conf", "hostfile")


def counterpart(program: Options, word: Value[str], given: dict[str, Value[str]]) -> str:
    """What to do about another launcher's option; empty where it may be the script's. `given`: the options there are,
    with their values."""
    name = word.value.partition("=")[0].replace("-", "_").lstrip("_")
    launcher = program.program.split()[0]
    if name == "use_env" and launcher == "torchrun":
        return "remove it: torchrun always sets LOCAL_RANK"
    own = _OWN.get(launcher, {})
    meaning = next((one for one, names in _MEANINGS.items() if name in names), "")
    if meaning == "endpoint" and own and not {own["address"], own["port"]} & given.keys():
        return f"write --{own['address']} and --{own['port']} in place of it"
    if meaning in own and own[meaning] not in given:
        return f"write --{own[meaning]}{_also(launcher, name, meaning, given)}"
    return f"remove it: {launcher} has no equivalent option" if own and name in _NOWHERE_ELSE else ""


def _also(launcher: str, name: str, meaning: str, given: dict[str, Value[str]]) -> str:
    """What else changes with the option."""
    if meaning == "processes" and launcher == "accelerate":
        return f"{_of_all_nodes(name, given)}, which counts those of all machines"
    if name == "num_processes":
        return _of_one_node(given)
    several = meaning == "nodes" and known(whole(given.get(name))) != 1
    return ", and --hostfile with the nodes" if launcher == "deepspeed" and several and "hostfile" not in given else ""


def _nodes(given: dict[str, Value[str]]) -> Value[str] | None:
    return next((given[name] for name in _MEANINGS["nodes"] if name in given), None)


def _of_all_nodes(name: str, given: dict[str, Value[str]]) -> str:
    """As accelerate counts the processes, where those of one node and the nodes are known."""
    each, nodes = known(whole(given.get(name))), known(whole(_nodes(given)))
    of_one_node = any(name == own["processes"] for own in _OWN.values())  # other names may mean all of them
    return f"={each * nodes}" if of_one_node and each and nodes else ""


def _of_one_node(given: dict[str, Value[str]]) -> str:
    """The processes of all nodes, as accelerate counts them, for a launcher that counts those of one."""
    place = _nodes(given)
    total, nodes = known(whole(given["num_processes"])), known(whole(place))
    if place is None or nodes == 1:
        return ""
    each = f"={total // nodes}" if total and nodes and total % nodes == 0 else ""
    return f"{each}, which counts those of one node"
