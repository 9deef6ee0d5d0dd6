"""K8S: the ranks that mpirun of an MPIJob starts, and the workers and slots that the job has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Value
from trainwright.check.readers.kubernetes_pods import command_words, maps_at
from trainwright.check.readers.values import bool_at, int_at, text_at
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Node

_TWO_VALUES = ("-mca", "--mca", "-gmca", "--gmca", "-genv")
_MPI, _NP = re.compile(r"\bmpi(?:run|exec)\b"), re.compile(r"(?<!\S)-np?\s+(\d+)(?!\S)")
_PER_NODE = re.compile(r"(?<!\S)(?:-N|-{1,2}npernode|-{1,2}ppn|-{1,2}perhost)\s+(\d+)(?!\S)|ppr:(\d+):node")
# Other ways to place ranks: hosts of one's own, a mapping (by slot is the default), more ranks than slots.
_PLACED = re.compile(
    r"(?<!\S)-{1,2}(H|hosts?|hostfile|machinefile|map-by(?!\s+slot(?!\S))|rankfile|rf|bynode|pernode|npersocket|loadbalance|rr|grr|f)\b"
    r"|\brmaps_"
)
_PLACES = re.compile(r"(OMPI_MCA|PRTE_MCA)_rmaps_|I_MPI_PERHOST|HYDRA_HOST_FILE|MPIEXEC_")  # the same by variables
_NO_TRAINING = re.compile(r"\s*(\S*/)?(hostname|date|echo|nvidia-smi|env|printenv|uname|ls|true)\b")  # a test
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_CROWDED = re.compile("oversubscribe", re.IGNORECASE)


def mpi_ranks(root: Node) -> Iterator[Problem]:
    """`mpirun -np 16 -N 8` in front of 16 workers fills 2 of them, and 32 ranks do not fit 2 workers of 8 slots."""
    count, launcher = int_at(root, "spec", "mpiReplicaSpecs", "Worker", "replicas"), _launcher(root)
    listed = launcher.get("containers") if launcher is not None else None
    for one in listed.elements() if listed is not None and count is not None and count.known else ():
        runs = " ".join(word.text for word in command_words(one))
        text = _before_the_program(runs)
        if _NO_TRAINING.match(_program(runs, text)) or any(_PLACES.match(name) for name in _variables(one)):
            continue
        total = _NP.findall(text)
        if count is not None and len(_MPI.findall(_COMMENT.sub("", runs))) == 1 and total:
            yield from _fits(root, count, int(total[0]), text)


def _program(runs: str, options: str) -> str:
    """What follows the options of mpirun."""
    return " ".join(runs.split()).partition(options)[2] if options else ""


def _variables(container: Node) -> list[str]:
    names = (text_at(one, "name") for one in maps_at(container, "env"))
    return [name.value for name in names if name is not None]


def _launcher(root: Node) -> Node | None:
    spec = root.get("spec", "mpiReplicaSpecs", "Launcher", "template", "spec")
    return spec if spec is not None and spec.is_map else None


def _fits(root: Node, count: Value[int], total: int, text: str) -> Iterator[Problem]:
    stated, slots = [int(a or b) for a, b in _PER_NODE.findall(text)], int_at(root, "spec", "slotsPerWorker")
    own = slots.value if slots is not None and slots.known and not _PLACED.search(text) else 0
    each = stated[0] if stated else own
    too = bool_at(root, "spec", "runLauncherAsWorker")
    workers = count.value + (too is not None and too.value)
    if each == 0:
        return
    what = "per node" if stated else "slot per worker" if each == 1 else "slots per worker"
    if -(-total // each) < workers:
        used = -(-total // each)
        yield problem(
            count,
            f"mpirun starts {total} ranks, {each} {what}: {used} of the {workers} workers have any",
            f"start {workers * each} ranks, or write {count.value - workers + used} here",
            why="workers without a rank hold their GPUs and do nothing.",
            level="warning",
        )
    elif total > workers * each and _refuses_more(root, text):
        yield problem(
            count,
            f"mpirun starts {total} ranks, and {workers} workers with {each} {what} take {workers * each}: Open MPI "
            "refuses it",
            f"start {workers * each} ranks, or write {-(-total // each) - workers + count.value} here",
            why="mpirun ends with `not enough slots available`, and starts 0 ranks.",
            level="warning",
        )


def _refuses_more(root: Node, text: str) -> bool:
    """Whether ranks above the slots are refused: Intel MPI and MPICH share the processors instead."""
    library, launcher = text_at(root, "spec", "mpiImplementation"), _launcher(root)
    if (library is not None and library.value != "OpenMPI") or launcher is None or "hostfile" in text:
        return False
    return not any(_CROWDED.search(node.text) for node in launcher.walk() if node.is_scalar)


def _before_the_program(text: str) -> str:
    """The options of mpirun itself: those of the program that it starts follow its first word without a dash, which is
    not the value of an option."""
    match = _MPI.search(text)
    words = text[match.end() :].split() if match is not None else []
    position = 0
    while position < len(words) and (words[position].startswith("-") or words[position] == "\\"):
        values = 2 if words[position] in _TWO_VALUES else 0 if words[position] == "\\" else 1
        following = words[position + 1 : position + 1 + values]
        taken = next((index for index, word in enumerate(following) if word.startswith("-")), len(following))
        position += 1 + taken
    return " ".join([match[0], *words[:position]]) if match is not None else ""
