"""SPC: the options that a job gives to another framework."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.model import Job

Path = tuple[str | int, ...]


@rule("SPC011", "warning")
def framework_takes_the_options(file: File) -> Iterator[Problem]:
    """The options of a job's command must be options of the framework that it starts.

    Checked for Megatron-LM, Megatron-DeepSpeed, torchtitan, BioNeMo, DINO, fairseq, verl, MaxText, neuronx-distributed
    and others, which are known by their script or module: an unknown option, a value that is no number where one is
    needed, a choice that does not exist. An option that only resembles a known one is an error.

    Why: the parser of the framework stops every rank, after the wait in the queue and the start of the container.

    Fix: write the option that is meant.

    Source: the argument parsers of these frameworks (`catalog/data/framework_flags.tsv.gz`).

    When to ignore: a fork or a newer version of the framework has the option.
    """
    from trainwright.catalog.framework_flags import check_options, framework_of

    for spec in file.specs:
        for index, job in enumerate(spec.loaded.spec.jobs):
            placed = [(word, ("jobs", index, *path)) for word, path in _words(job)]
            framework, start = framework_of([word for word, _ in placed])
            for found in check_options(framework, [word for word, _ in placed[start:]]):
                level: Level = "error" if found.fix.startswith("did you mean") else "warning"
                span = spec.loaded.span(*placed[start + found.index][1])
                yield problem(span, found.what, found.fix, level=level)


def _words(job: Job) -> list[tuple[str, Path]]:
    """What a rank runs, each word with its place: also inside `bash -c '...; exec command'`."""
    if job.script:
        return [("python", ("script",)), (job.script, ("script",)), *_args(job)]
    words: list[tuple[str, Path]] = [(word, ("command", at)) for at, word in enumerate(job.command)]
    if job.command[:2] == ("bash", "-c") and len(job.command) > 2:
        line = job.command[2].rpartition("exec ")[2]
        if line.startswith('"$@"'):
            words = words[4:]
        else:
            try:
                words = [(word, ("command", 2)) for word in shlex.split(line)]
            except ValueError:  # an open quote: bash will say so
                words = []
    return [*words, *_args(job)]


def _args(job: Job) -> list[tuple[str, Path]]:
    return [(word, ("args", at)) for at, word in enumerate(job.args)]
