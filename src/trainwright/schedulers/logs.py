"""Reading the logs of a run folder, in place or over ssh: which files there are, and what is new in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from trainwright.schedulers.shell import Shell

# How torchrun (with our prefix template) and mpirun mark the rank of a line where one log holds several.
RANK_LINE = re.compile(r"\[(?:rank|1,)(\d+)\](?:<\w+>)?: ?(.*)")
LOG_NAME = re.compile(r"(job(?:-\d+)?|rank-\d+|node-\d+|health-\S+)\.log")


def folder_logs(shell: Shell, folder: str, seen: dict[str, str], rank: int | None = None) -> Iterator[tuple[str, str]]:
    """New whole lines of every log of a run folder, with the log's name; `seen` maps a file to its read position."""
    for path in log_files(shell, folder, rank):
        lines, end = new_lines(shell, path, int(seen.get(path, 0)))
        seen[path] = str(end)
        source = path.rsplit("/", 1)[-1].removesuffix(".log")
        yield from ((source, line) for line in lines)


def new_lines(shell: Shell, path: str, start: int) -> tuple[list[str], int]:
    """The whole lines after a position, and the position after them; a file that was cut short is read again."""
    # A trainer that resumes removes the lines of the steps it will repeat.
    start = 0 if shell.size(path) < start else start
    data = shell.read(path, start)
    whole = data[: data.rfind(b"\n") + 1]
    return [line.decode(errors="replace") for line in whole.split(b"\n")[:-1]], start + len(whole)


def log_files(shell: Shell, folder: str, rank: int | None = None) -> list[str]:
    """The log files of a run so far: all of them, or one rank's."""
    names = [name for name in shell.listing(f"{folder}/logs") if LOG_NAME.fullmatch(name)]
    if rank is not None:
        # A command that starts once per node has no log of a rank: its nodes stand for ranks.
        kind = "rank" if any(name.startswith("rank-") for name in names) else "node"
        return [f"{folder}/logs/{name}" for name in names if name == f"{kind}-{rank}.log"]
    names.sort(key=lambda name: [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)])
    own = [name for name in shell.listing(folder) if LOG_NAME.fullmatch(name)]
    return [*(f"{folder}/{name}" for name in own), *(f"{folder}/logs/{name}" for name in names)]


def by_rank(
    lines: Iterable[tuple[str, str]], rank: int | None, node: Callable[[str], int | None] = lambda source: None
) -> Iterator[tuple[str, str]]:
    """Lines of an API's log, where one container's log holds all ranks of a node: each under its rank. `node` gives the
    number of a source's node: a command that starts once per node marks no rank, and its nodes stand for ranks."""
    for source, line in lines:
        marked = RANK_LINE.match(line)
        if rank is None or (int(marked[1]) if marked else node(source)) == rank:
            yield (f"rank-{marked[1]}", marked[2]) if marked else (source, line)
