"""Files -> one spec: each file is recognised, and the cluster of one takes the job of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.adopt.branches import Folded, fold
from trainwright.adopt.kubernetes import adopt_manifest
from trainwright.adopt.parallelcluster import adopt_cluster
from trainwright.adopt.result import Adoption, Note
from trainwright.adopt.slurm import adopt_script
from trainwright.check.readers.recognise import read_file
from trainwright.errors import UserError
from trainwright.spec.source import SourceError, read_text

_PLACEHOLDER = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


def adopt(paths: Sequence[str], values: Mapping[str, str] | None = None) -> Adoption:
    """The spec of the files together. `values` fill in what envsubst would have."""
    parts = [_adopt_one(path, values or {}) for path in paths]
    clusters = [part for part in parts if "jobs" not in part.spec]
    jobs = [part for part in parts if "jobs" in part.spec]
    if len(clusters) > 1:
        raise UserError("two cluster files", where=clusters[1].file, fix="adopt one cluster at a time")
    if len({part.spec["platform"] for part in jobs}) > 1:
        raise UserError("jobs for Slurm and for Kubernetes", fix="adopt them one at a time: a spec has one platform")
    whole = clusters[0] if clusters else jobs[0]
    for part in parts:
        if part is not whole:
            _join(whole, part)
    return whole


def _adopt_one(path: str, values: Mapping[str, str]) -> Adoption:
    try:
        text = read_text(Path(path))
    except OSError as error:
        raise UserError(f"cannot read the file: {error.strerror}", where=path) from None
    is_shell = bool(re.search(r"\A#!.*sh\b|^#SBATCH", text, re.MULTILINE))
    folded = fold(text) if is_shell else Folded(text)
    text = folded.text
    if not is_shell:
        text = _PLACEHOLDER.sub(lambda match: values.get(match[1] or match[2], match[0]), text)
    try:
        file = read_file(path, text)
    except SourceError as error:
        raise UserError(error.what, where=f"{path}:{error.span.line}", fix=error.fix) from None
    if file is None or file.format not in ("sbatch", "shell", "kubernetes", "parallelcluster"):
        raise UserError(
            "not a file that can be adopted", where=path,
            fix="it takes sbatch scripts, Kubernetes job manifests and ParallelCluster configurations",
        )  # fmt: skip
    if file.format in ("sbatch", "shell"):
        adoption = adopt_script(file)
        for line, what in folded.decided:
            adoption.assumed.append(Note(f"if {what}", f"{path}:{line}", "the branch that is not taken was left out"))
        return adoption
    return adopt_manifest(file) if file.format == "kubernetes" else adopt_cluster(file)


def _join(whole: Adoption, part: Adoption) -> None:
    """Put the jobs of one file onto the cluster of another."""
    names = {queue["name"] for queue in whole.spec["queues"]}
    taken = {job["name"] for job in whole.spec.get("jobs", ())}
    for job in part.spec["jobs"]:
        queue = part.spec["queues"][0]
        fits = queue["name"] if queue["name"] in names else whole.spec["queues"][0]["name"]
        made = {**job, "name": _free(job["name"], taken), "queue": fits}
        whole.spec.setdefault("jobs", []).append(made)
        taken.add(made["name"])
        if fits != queue["name"]:
            whole.assume(
                f"queue: {fits}", None, f"{part.file} asks for {queue['name']}, which the cluster does not have"
            )
    for kind in ("carried", "assumed", "dropped"):
        getattr(whole, kind).extend(getattr(part, kind))
    if whole.spec["platform"] == part.spec["platform"]:
        _widen(whole.spec["queues"], part.spec["queues"][0])


def _widen(queues: list[dict[str, Any]], other: dict[str, Any]) -> None:
    """Two jobs of one queue: it has the nodes of the larger."""
    for queue in queues:
        if queue["name"] == other["name"]:
            for key in ("nodes", "cpus", "gpus"):
                if key in other:
                    queue[key] = max(queue.get(key, 0), other[key])
            return
    queues.append(other)


def _free(name: str, taken: set[str]) -> str:
    return name if name not in taken else next(n for i in range(2, 99) if (n := f"{name}-{i}") not in taken)
