"""A launch command taken apart: what belongs to the launcher (how many ranks, where they meet), which the job script
does, and what each rank runs, which is kept word by word."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainwright.check.model import Command, Value

Words = list[Value[str]]

# Options of torchrun: those with a value, and those without one.
_TORCHRUN_VALUES = {
    "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "max_restarts",
    "monitor_interval", "start_method", "role", "log_dir", "redirects", "tee", "local_ranks_filter", "node_rank",
    "master_addr", "master_port", "local_addr", "logs_specs", "numa_binding", "signals_to_handle", "shutdown_timeout",
    "event_log_handler",
}  # fmt: skip
_TORCHRUN_FLAGS = {"standalone", "run_path", "virtual_local_rank", "use_env", "duplicate_stdout_filters"}
_MEETING = {"rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "node_rank", "master_addr", "master_port",
            "local_addr", "standalone", "use_env"}  # fmt: skip
# Launchers that start the ranks of a node themselves: option -> what it tells.
OWN_LAUNCHERS: dict[str, dict[str, str]] = {
    "composer": {
        "nproc": "processes", "n": "processes", "world_size": "world", "node_rank": "node_rank",
        "master_addr": "address", "master_port": "port",
    },
    "accelerate": {
        "num_processes": "world", "num_machines": "nodes", "machine_rank": "node_rank", "main_process_ip": "address",
        "main_process_port": "port",
    },
    "deepspeed": {
        "num_nodes": "nodes", "num_gpus": "processes", "node_rank": "node_rank", "master_addr": "address",
        "master_port": "port", "hostfile": "hostfile",
    },
}  # fmt: skip
# With a hostfile, deepspeed starts the ranks of all nodes from one of them: torchrun takes its place.
_DEEPSPEED_FLAGS = {"no_ssh", "no_ssh_check", "no_local_rank", "force_multi", "bind_cores_to_rank"}
_DEEPSPEED_SIZES = {"num_nodes": "nnodes", "num_gpus": "nproc_per_node"}
_DEEPSPEED_MEETING = {"hostfile", "H", "master_addr", "master_port", "node_rank", "launcher", "ssh_port"}
_PYTHON = re.compile(r"python3?(\.\d+)?")


@dataclass(slots=True)
class Launched:
    """What a launch command starts. `launcher`: torchrun | srun (one task per rank) | plain (one per node)."""

    launcher: str
    words: Words  # of each rank, or of each node
    nodes: Value[str] | None = None
    processes: Value[str] | None = None
    replaced: list[tuple[str, Value[str]]] = field(default_factory=list)  # options that the job script replaces
    lost: list[tuple[str, Value[str]]] = field(default_factory=list)  # options that have no counterpart
    world: Value[str] | None = None  # ranks of the whole job


def taken_apart(command: Command) -> Launched:
    """The launcher of a command and what it starts, with the path of the program where one is written."""
    launched = _taken_apart(command)
    if launched.words and launched.words[0] is command.words[0] and command.invoked is not None:
        launched.words = [command.invoked, *launched.words[1:]]
    return launched


def _taken_apart(command: Command) -> Launched:
    words = list(command.words)
    program = command.program
    if _PYTHON.fullmatch(program) and len(words) > 2 and words[1].value in ("-u", "-O"):
        rest = words[2:]
    else:
        rest = words[1:]
    if program in ("torchrun", "hyperpodrun"):  # HyperPod's agent takes torchrun's options
        return _torchrun(words[1:])
    if _PYTHON.fullmatch(program) and len(rest) > 1 and rest[0].value == "-m":
        if rest[1].value in ("torch.distributed.run", "torch.distributed.launch"):
            return _torchrun(rest[2:])
        if rest[1].value.startswith("accelerate.commands"):
            return _own_launcher("accelerate", words)
    if program == "deepspeed" and any(re.match(r"(--hostfile|-H)\b", word.value) for word in rest):
        return _deepspeed(rest)
    if program in OWN_LAUNCHERS and not (program == "accelerate" and (not rest or rest[0].value != "launch")):
        return _own_launcher(program, words)
    return Launched("srun", words)


def _torchrun(words: Words) -> Launched:
    launched = Launched("torchrun", [])
    index = 0
    while index < len(words):
        word = words[index]
        name, equals, _ = word.value.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.value in ("-m", "--module"):
            launched.words = [_python(word), *words[index:]]
            return launched
        if word.value == "--no-python":
            launched.words = words[index + 1 :]
            return launched
        if not word.value.startswith("-"):
            launched.words = [_python(word), *words[index:]]
            return launched
        alone = bool(equals) or name in _TORCHRUN_FLAGS
        value = (
            _after_equals(word) if equals else word if alone else words[index + 1] if index + 1 < len(words) else word
        )
        _torchrun_option(launched, name, value)
        index += 1 if alone else 2
    return launched


def _torchrun_option(launched: Launched, name: str, value: Value[str]) -> None:
    if name in ("nnodes", "N"):
        launched.nodes = value
    elif name in ("nproc_per_node", "n"):
        launched.processes = value
    elif name in _MEETING:
        launched.replaced.append((f"--{name}", value))
    else:
        launched.lost.append((f"--{name}", value))


def _deepspeed(words: Words) -> Launched:
    launched = Launched("torchrun", [])
    index = 0
    while index < len(words) and words[index].value.startswith("-"):
        word = words[index]
        name, equals, _ = word.value.lstrip("-").partition("=")
        if name in ("module", "no_python"):
            module = [word.meaning("-m")] if name == "module" else []
            launched.words = [*([_python(word)] if module else []), *module, *words[index + 1 :]]
            return launched
        alone = bool(equals) or name in _DEEPSPEED_FLAGS
        value = _after_equals(word) if equals else word if alone else words[min(index + 1, len(words) - 1)]
        if name in _DEEPSPEED_MEETING:
            launched.replaced.append((f"--{name}", value))
        else:
            _torchrun_option(launched, _DEEPSPEED_SIZES.get(name, name), value)
        index += 1 if alone else 2
    launched.words = [_python(words[index]), *words[index:]] if index < len(words) else []
    return launched


def _python(near: Value[str]) -> Value[str]:
    return Value("python", near.span, "python")


def _after_equals(word: Value[str]) -> Value[str]:
    return word.meaning(word.value.partition("=")[2])


def _own_launcher(name: str, words: Words) -> Launched:
    """composer, accelerate and deepspeed stay as they are; what differs from node to node comes from the job script."""
    meanings = OWN_LAUNCHERS[name]
    launched = Launched("plain", [])
    pending = ""
    for word in words:
        if pending:
            launched.words.append(_told(launched, pending, word))
            pending = ""
            continue
        option, equals, value = word.value.lstrip("-").partition("=")
        meaning = meanings.get(option.replace("-", "_")) if word.value.startswith("-") else None
        if meaning is None:
            launched.words.append(word)
        elif equals:
            told = _told(launched, meaning, word.meaning(value))
            text = word.value[: -len(value)] + told.value if value else word.value + told.value
            launched.words.append(Value(text, word.span, text, None, told.known))
        else:
            launched.words.append(word)
            pending = meaning
    return launched


def _told(launched: Launched, meaning: str, value: Value[str]) -> Value[str]:
    """The value of a launcher's option: taken note of, and replaced where each node needs its own."""
    own = {"node_rank": "$NODE_RANK", "address": "$MASTER_ADDR", "port": "$MASTER_PORT"}.get(meaning)
    if own is not None:
        launched.replaced.append((meaning.replace("_", " "), value))
        return Value(own, value.span, own, None, False)
    if meaning == "processes":
        launched.processes = value
    elif meaning == "nodes":
        launched.nodes = value
    elif meaning == "world":
        launched.world = value
    return value
